package weir;

import java.time.Duration;
import java.lang.foreign.MemorySegment;
import weir.ffi.Native;

/**
 * A recording of sources into a directory: packets kept in RAM and on disk, and saved around triggers.
 *
 * <pre>{@code
 * RecordOptions settings = new RecordOptions().ram(1L << 30).disk(100L << 30).trigger("rst=tcp[13] & 4 != 0");
 * try (Recorder recorder = Recorder.open(settings, "/var/cap", "eth0")) {
 *     ...
 *     recorder.trigger(Duration.ofSeconds(30), Duration.ofSeconds(5));
 * }
 * }</pre>
 *
 * <p>{@code weir query}, {@link Source} and {@link Measurement} read the directory, also while the recording goes on.
 *
 * <p><b>Threads</b>: each method may be called from any thread. A wait is one in native code: it is ended by {@link #stop}, and not by an
 * interrupt. <b>Lifetime</b>: a recording that is forgotten without {@link #close} goes on. <b>Cost</b>: {@link #open} obtains the memory
 * for packets; {@link #status} looks at each chunk of it.
 */
public final class Recorder implements AutoCloseable {
    private final long handle;
    private volatile boolean ended;
    private boolean closed;

    private Recorder(long handle) {
        this.handle = handle;
    }

    /** Records all packets of sources into a directory, which is made if it is missing. */
    public static Recorder open(RecordOptions record, String directory, String... names) {
        return open(Options.DEFAULT, record, directory, names);
    }

    /**
     * Begins to record sources, named as for the weir command, into a directory, which is made if it is missing. Of {@code options}, the
     * filter and the settings of captures are used. Waits until the capture has begun.
     *
     * @throws WeirException a name, the filter or a setting is wrong, or there is too little memory; with the line that the command prints
     */
    public static Recorder open(Options options, RecordOptions record, String directory, String... names) {
        return new Recorder(Task.open((arena, result, error) -> (int) Native.weir_record_open.invokeExact(
            Source.texts(arena, names), (long) names.length, Source.text(arena, directory), options.in(arena), record.in(arena),
            result, error)));
    }

    /**
     * Fires all triggers: packets from {@code before} now to {@code after} now are saved. If both times are 0, each trigger saves packets of
     * its own times. If files are recorded, now is the timestamp of the latest recorded packet, and the call waits up to a second for the first
     * packet. Returns the triggers as JSON: <code>{"type":"trigger","fired":[...],"refused":{NAME: WHY}}</code>.
     *
     * @throws WeirException no trigger fired, for these reasons
     */
    public String trigger(Duration before, Duration after) {
        return Task.text((arena, text, error) -> (int) Native.weir_record_trigger.invokeExact(
            handle, MemorySegment.NULL, Task.nanos(before), Task.nanos(after), text, error));
    }

    /** Fires the trigger of this name, for the times that it has. Returns the same as {@link #trigger(Duration, Duration)}. */
    public String trigger(String name) {
        return Task.text((arena, text, error) -> (int) Native.weir_record_trigger.invokeExact(
            handle, Source.text(arena, name), 0L, 0L, text, error));
    }

    /** Returns the state: a JSON object, as {@code weir record --status} prints it. */
    public String status() {
        return Task.text((arena, text, error) -> (int) Native.weir_record_status.invokeExact(handle, text));
    }

    /**
     * Waits at most {@code most} for the next file that a trigger saves, or fails to save, and returns a JSON object about it. Returns
     * {@code null} if none came, and at the end: see {@link #isEnded}.
     */
    public String next(Duration most) {
        return Task.text((arena, text, error) -> {
            int status = (int) Native.weir_record_next.invokeExact(handle, Task.nanos(most), text, error);
            ended |= status == Native.WEIR_END;
            return status;
        });
    }

    /** Whether a call of {@link #next} has found the end: files were recorded to their end, or the recording was stopped. */
    public boolean isEnded() {
        return ended;
    }

    /** Ends the recording early: what the sources received is recorded. */
    public void stop() {
        Task.text((arena, text, error) -> {
            int status = (int) Native.weir_record_stop.invokeExact(handle);
            return status == Native.WEIR_OK ? Native.WEIR_NOTHING : status;
        });
    }

    /** Returns what the user should know although nothing failed, a line each, since the last call; empty if there is nothing. */
    public String remarks() {
        String lines = Task.text((arena, text, error) -> (int) Native.weir_record_remarks.invokeExact(handle, text));
        return lines == null ? "" : lines;
    }

    /**
     * Ends, completes and closes the recording. Returns its account: a JSON object, as {@code weir record --json} prints it at the end.
     *
     * @throws WeirException a source or a file failed; the recording is closed. Or another thread is in a call: {@link #stop}, and end again
     */
    public synchronized String end() {
        return Task.text((arena, text, error) -> {
            int status = (int) Native.weir_record_close.invokeExact(handle, text, error);
            closed = status != Native.WEIR_BUSY;
            return status;
        });
    }

    /** Ends and closes the recording. Does nothing if it is closed. */
    @Override
    public synchronized void close() {
        if (!closed) {
            end();
        }
    }
}
