package weir;

import java.time.Duration;
import java.util.List;

/**
 * Settings of a {@link Sink}.
 *
 * @param yesSend interfaces that may send although they carry the default route of this host or the login of this program, or are ports of a
 *     bridge
 * @param reserve bytes of the disk that stay free: a file grows no further, and the sink has failed then; 0 for 1 GiB, or a twentieth of the
 *     disk if that is less
 * @param shiftNanos time that is added to the timestamps of packets, ns
 * @param anonymize file with the key of other addresses, 32 bytes that its owner alone may read; empty to leave addresses as they are
 * @param payload bytes of payload that are kept of each packet with other addresses. Payload may have addresses, which stay
 */
public record SinkOptions(List<String> yesSend, long reserve, long shiftNanos, String anonymize, long payload) {
    /** The defaults. */
    public static final SinkOptions DEFAULT = new SinkOptions(List.of(), 0, 0, "", 0);

    /** Takes a copy of the names. */
    public SinkOptions {
        yesSend = List.copyOf(yesSend);
    }

    /** The same settings with other interfaces. */
    public SinkOptions withYesSend(String... interfaces) {
        return new SinkOptions(List.of(interfaces), reserve, shiftNanos, anonymize, payload);
    }

    /** The same settings with another reserve, bytes. */
    public SinkOptions withReserve(long bytes) {
        return new SinkOptions(yesSend, bytes, shiftNanos, anonymize, payload);
    }

    /** The same settings, with a time that is added to the timestamps of packets. */
    public SinkOptions withShift(Duration time) {
        return new SinkOptions(yesSend, reserve, time.toNanos(), anonymize, payload);
    }

    /** The same settings, with other addresses by the key of a file, and without payload. */
    public SinkOptions withAnonymize(String keyFile) {
        return new SinkOptions(yesSend, reserve, shiftNanos, keyFile, payload);
    }

    /** The same settings, with bytes of payload that are kept of each packet with other addresses. */
    public SinkOptions withPayload(long bytes) {
        return new SinkOptions(yesSend, reserve, shiftNanos, anonymize, bytes);
    }
}
