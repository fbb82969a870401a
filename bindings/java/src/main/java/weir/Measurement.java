package weir;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.List;
import weir.ffi.Native;

/**
 * A measurement of sources: the largest flows, addresses or ports, with bounds. Answers come one after another:
 *
 * <pre>{@code
 * MeasureOptions settings = new MeasureOptions().key("src").window(Duration.ofSeconds(1));
 * try (Measurement measurement = Measurement.open(settings, "trace.pcap")) {
 *     for (Measurement.Answer answer; (answer = measurement.next()) != null; ) {
 *         System.out.println(answer.json());
 *     }
 * }
 * }</pre>
 *
 * <p><b>Threads</b>: each method may be called from any thread. Threads of the library read and count. A wait is one in native code: it is
 * ended by {@link #stop}, and not by an interrupt.
 *
 * <p><b>Lifetime</b>: a measurement that is forgotten without {@link #close} keeps its threads and memory. While 64 windows wait to be taken,
 * files are not read, and windows of interfaces are left out: the next answer counts them as {@code left_out}.
 *
 * <p><b>Cost</b>: a call allocates its answer. The text was made by the thread that reads.
 */
public final class Measurement implements AutoCloseable {
    /**
     * An answer.
     *
     * @param isSummary whether this is the summary, the last answer
     * @param json the answer: a JSON object in one line, as {@code weir measure --json} prints it
     * @param tcp health of TCP; {@code null} without {@link MeasureOptions#healthTcp}
     * @param dns health of DNS; {@code null} without {@link MeasureOptions#healthDns}
     * @param findings findings that began or ended since the answer before; the summary also has open findings
     */
    public record Answer(boolean isSummary, String json, Health.Tcp tcp, Health.Dns dns, List<Finding> findings) {}

    private final long handle;
    private volatile boolean ended;
    private boolean closed;

    private Measurement(long handle) {
        this.handle = handle;
    }

    /** Measures all packets of sources, named as for the weir command: files, record directories or interfaces. */
    public static Measurement open(MeasureOptions measure, String... names) {
        return open(Options.DEFAULT, measure, names);
    }

    /**
     * Begins to measure sources. Of {@code options}, the filter, the workers, the times of a record directory and the settings of captures
     * and files are used. Waits until the first packets of a file are there, or the capture has begun.
     *
     * @throws WeirException a name, the filter or a setting is wrong, or no source can be read; with the line that the command prints
     */
    public static Measurement open(Options options, MeasureOptions measure, String... names) {
        return new Measurement(Task.open((arena, result, error) -> (int) Native.weir_measure_open.invokeExact(
            Source.texts(arena, names), (long) names.length, options.in(arena), measure.in(arena), result, error)));
    }

    /**
     * Waits for the next answer: each complete window, if the options name one, and at the end the summary. Returns {@code null} after it.
     *
     * @throws WeirException a source failed; the summary before it has the error as {@code fault}. The next call returns {@code null}
     */
    public Answer next() {
        while (true) {
            Answer answer = next(Duration.ofSeconds(Long.MAX_VALUE));
            if (answer != null || ended) {
                return answer;
            }
        }
    }

    /**
     * Waits at most {@code most} for the next answer. Returns {@code null} if none came, and at the end: see {@link #isEnded}.
     *
     * @throws WeirException as for {@link #next()}
     */
    public Answer next(Duration most) {
        Answer[] answer = new Answer[1];
        Task.text((arena, text, error) -> {
            MemorySegment summary = arena.allocate(ValueLayout.JAVA_INT);
            int status = (int) Native.weir_measure_next.invokeExact(handle, Task.nanos(most), text, summary, error);
            ended |= status == Native.WEIR_END;
            if (status != Native.WEIR_OK) {
                return status;
            }
            long handle = text.get(ValueLayout.JAVA_LONG, 0);
            try {
                answer[0] = Health.answer(handle, summary.get(ValueLayout.JAVA_INT, 0) == 1);
            } finally {
                Native.weir_text_free.invoke(handle);
            }
            return Native.WEIR_NOTHING;
        });
        return answer[0];
    }

    /** Whether a call has found the end: no answer comes any more. */
    public boolean isEnded() {
        return ended;
    }

    /** Ends the measurement early. Packets that were read are measured, and the answers can still be taken. */
    public void stop() {
        Task.text((arena, text, error) -> status((int) Native.weir_measure_stop.invokeExact(handle)));
    }

    /** Returns what the user should know although nothing failed, a line each, since the last call; empty if there is nothing. */
    public String remarks() {
        String lines = Task.text((arena, text, error) -> (int) Native.weir_measure_remarks.invokeExact(handle, text));
        return lines == null ? "" : lines;
    }

    /**
     * Ends the measurement. Answers that wait are dropped. Does nothing if it is closed.
     *
     * @throws WeirException another thread waits for an answer: {@link #stop}, and close again
     */
    @Override
    public synchronized void close() {
        if (!closed) {
            Task.text((arena, text, error) -> status((int) Native.weir_measure_close.invokeExact(handle)));
            closed = true;
        }
    }

    /** The status of a call that gives no text. */
    private static int status(int status) {
        return status == Native.WEIR_OK ? Native.WEIR_NOTHING : status;
    }
}
