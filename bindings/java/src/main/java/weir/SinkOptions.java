package weir;

import java.util.List;

/**
 * Settings of a {@link Sink}.
 *
 * @param yesSend interfaces that may send although they carry the default route of this host or the login of this program, or are ports of a
 *     bridge
 * @param reserve bytes of the disk that stay free: a file grows no further, and the sink has failed then; 0 for 1 GiB, or a twentieth of the
 *     disk if that is less
 */
public record SinkOptions(List<String> yesSend, long reserve) {
    /** The defaults. */
    public static final SinkOptions DEFAULT = new SinkOptions(List.of(), 0);

    /** Takes a copy of the names. */
    public SinkOptions {
        yesSend = List.copyOf(yesSend);
    }

    /** The same settings with other interfaces. */
    public SinkOptions withYesSend(String... interfaces) {
        return new SinkOptions(List.of(interfaces), reserve);
    }

    /** The same settings with another reserve, bytes. */
    public SinkOptions withReserve(long bytes) {
        return new SinkOptions(yesSend, bytes);
    }
}
