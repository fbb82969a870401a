package weir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import weir.ffi.Native;

/** A capture file or an interface that takes packets of batches. */
public final class Sink implements AutoCloseable {
    /**
     * Packets by what became of them: {@code given = written + refused + lost}.
     *
     * @param given packets given to the sink
     * @param written packets written to the file, or handed to the interface
     * @param refused packets that an interface did not take: too long, too short, or without room
     * @param lost packets given to a sink that failed, and not written
     */
    public record Counts(long given, long written, long refused, long lost) {}

    private final long handle;
    private final MemorySegment error;
    private boolean closed;

    private Sink(long handle) {
        this.handle = handle;
        error = Arena.ofAuto().allocate(ValueLayout.JAVA_LONG);
    }

    /**
     * Opens a sink, named as for the weir command: a file, {@code -}, {@code af_packet:eth0}, {@code null}.
     *
     * @param yesSend interfaces that may send although they carry the default route of this host or the login of this program, or are
     *     ports of a bridge
     */
    public static Sink open(String name, String... yesSend) {
        return open(name, SinkOptions.DEFAULT.withYesSend(yesSend));
    }

    /** Opens a sink, named as for the weir command, with settings. */
    public static Sink open(String name, SinkOptions options) {
        WeirException.checkLibrary();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment sink = arena.allocate(ValueLayout.JAVA_LONG);
            MemorySegment error = arena.allocate(ValueLayout.JAVA_LONG);
            MemorySegment settings = arena.allocate(Native.weir_sink_options.LAYOUT);
            settings.set(ValueLayout.JAVA_INT, Native.weir_sink_options.size, (int) Native.weir_sink_options.LAYOUT.byteSize());
            if (!options.yesSend().isEmpty()) {
                settings.set(ValueLayout.ADDRESS, Native.weir_sink_options.yes_send, Source.text(arena, String.join(",", options.yesSend())));
            }
            settings.set(ValueLayout.JAVA_LONG, Native.weir_sink_options.reserve, options.reserve());
            settings.set(ValueLayout.JAVA_LONG, Native.weir_sink_options.shift_ns, options.shiftNanos());
            if (!options.anonymize().isEmpty()) {
                settings.set(ValueLayout.ADDRESS, Native.weir_sink_options.anonymize, Source.text(arena, options.anonymize()));
            }
            settings.set(ValueLayout.JAVA_LONG, Native.weir_sink_options.payload, options.payload());
            int status = (int) Native.weir_sink_open_with.invokeExact(Source.text(arena, name), settings, sink, error);
            if (status != Native.WEIR_OK) {
                throw WeirException.of(status, error);
            }
            return new Sink(sink.get(ValueLayout.JAVA_LONG, 0));
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        }
    }

    /** Sends the packets of a batch that passed the filter. */
    public void send(Batch batch) {
        send(batch, MemorySegment.NULL);
    }

    /** Sends the packets of a batch that a program lets pass. */
    public void send(Batch batch, Verdicts verdicts) {
        send(batch, verdicts.words(batch));
    }

    private void send(Batch batch, MemorySegment words) {
        batch.checkHeld();
        try {
            int status = (int) Native.weir_send.invokeExact(handle, batch.lease(), words, error);
            if (status != Native.WEIR_OK) {
                throw WeirException.of(status, error);
            }
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        }
    }

    /** Completes the file, or sends what is left, and returns the final counts. */
    public Counts end() {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment counts = arena.allocate(Native.weir_sink_counts.LAYOUT);
            int status = (int) Native.weir_sink_close.invokeExact(handle, counts, error);
            closed = true;
            if (status != Native.WEIR_OK) {
                throw WeirException.of(status, error);
            }
            return new Counts(
                counts.get(ValueLayout.JAVA_LONG, Native.weir_sink_counts.given),
                counts.get(ValueLayout.JAVA_LONG, Native.weir_sink_counts.written),
                counts.get(ValueLayout.JAVA_LONG, Native.weir_sink_counts.refused),
                counts.get(ValueLayout.JAVA_LONG, Native.weir_sink_counts.lost));
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        }
    }

    /** Closes the sink. Does nothing if it is closed. */
    @Override
    public void close() {
        if (!closed) {
            end();
        }
    }
}
