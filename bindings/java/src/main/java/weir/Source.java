package weir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import jdk.jfr.FlightRecorder;
import weir.ffi.Native;

/**
 * A source of packets: capture files, a record directory, or an interface. The caller pulls packets in batches:
 *
 * <pre>{@code
 * try (Source source = Source.open("trace.pcap"); Batch batch = new Batch()) {
 *     while (source.next(batch)) {
 *         Packet packet = batch.packet();
 *         for (int i = 0; i < batch.size(); i++) {
 *             if (packet.at(i).isUdp()) count++;
 *         }
 *         batch.release();
 *     }
 * }
 * }</pre>
 *
 * <p><b>Threads</b>: any number may pull, each with a {@link Batch} of its own; each batch goes to one of them. Threads of the
 * library read ahead. Pin a worker to a processor from inside its own thread. A wait for packets is one in native code: it holds the
 * carrier of a virtual thread, so use platform threads; it is ended by {@link #stop}, and not by an interrupt.
 *
 * <p><b>Lifetime</b>: {@link Batch} and {@link Packet} check each access and throw after the release, and so does a segment of
 * {@link Batch#region}. With {@link Options#withDebug} the bytes of released packets are overwritten, so that programs which read
 * addresses of their own ({@link UncheckedPackets}) show it. A source that is forgotten without {@link #close} keeps its threads and
 * memory: there are no finalizers. Close batches before their source, as by declaring them after it.
 *
 * <p><b>Allocation</b>: none in {@link #next} and for packets.
 */
public final class Source implements AutoCloseable {
    private final long handle;
    private final boolean debug;
    private volatile boolean closed;

    private final String name;
    private final Runnable recorded = this::record;

    private Source(long handle, String name, boolean debug) {
        this.handle = handle;
        this.name = name;
        this.debug = debug;
        FlightRecorder.addPeriodicEvent(CountsEvent.class, recorded);
    }

    /** Adds the counts to a recording, in a thread of the recorder. */
    private synchronized void record() {
        if (!closed) {
            new CountsEvent().commit(name, counts());
        }
    }

    /** Opens sources, all packets of them: files one after another, or interfaces in the order of time, named as for the weir command. */
    public static Source open(String... names) {
        return open(Options.DEFAULT, names);
    }

    /**
     * Opens sources. Waits until the first packets of a file are there, or the capture has begun.
     *
     * @throws WeirException a name, the filter or a setting is wrong, or a file cannot be read; with the line that the command prints
     */
    public static Source open(Options options, String... names) {
        WeirException.checkLibrary();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment list = texts(arena, names);
            MemorySegment settings = options.in(arena);
            MemorySegment source = arena.allocate(ValueLayout.JAVA_LONG);
            MemorySegment error = arena.allocate(ValueLayout.JAVA_LONG);
            int status = (int) Native.weir_open.invokeExact(list, (long) names.length, settings, source, error);
            if (status != Native.WEIR_OK) {
                throw WeirException.of(status, error);
            }
            return new Source(source.get(ValueLayout.JAVA_LONG, 0), String.join(" ", names), options.debug());
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        }
    }

    /** Makes a text for C, where a character of 0 would end it. */
    static MemorySegment text(Arena arena, String text) {
        if (text.indexOf(0) >= 0) {
            throw new IllegalArgumentException("a text with a character of 0: " + text.replace('\0', '?'));
        }
        return arena.allocateFrom(text);
    }

    static MemorySegment texts(Arena arena, String[] texts) {
        MemorySegment list = arena.allocate(ValueLayout.ADDRESS, Math.max(texts.length, 1));
        for (int i = 0; i < texts.length; i++) {
            list.setAtIndex(ValueLayout.ADDRESS, i, text(arena, texts[i]));
        }
        return list;
    }

    /**
     * Waits for the next batch. Returns {@code false} at the end.
     *
     * @throws WeirException the source could not be read to its end; all batches from before came. The next call returns {@code false}
     * @throws IllegalStateException {@code batch} was not released
     */
    public boolean next(Batch batch) {
        while (true) {
            int status = pull(batch, Long.MAX_VALUE);
            if (status != Native.WEIR_NOTHING) {
                return status == Native.WEIR_OK;
            }
        }
    }

    /**
     * Waits at most {@code nanos} for the next batch. Returns {@code false} if none came, and at the end: see {@link #isEnded}.
     *
     * @throws WeirException as for {@link #next(Batch)}
     */
    public boolean next(Batch batch, long nanos) {
        return pull(batch, nanos) == Native.WEIR_OK;
    }

    private int pull(Batch batch, long nanos) {
        return BatchEvent.TYPE.isEnabled() ? pullRecorded(batch, nanos) : pullOnce(batch, nanos);
    }

    private int pullRecorded(Batch batch, long nanos) {
        BatchEvent event = new BatchEvent();
        event.begin();
        int status = pullOnce(batch, nanos);
        event.end();
        if (status == Native.WEIR_OK && event.shouldCommit()) {
            event.packets = batch.size();
            event.passed = batch.passed();
            event.commit();
        }
        return status;
    }

    private int pullOnce(Batch batch, long nanos) {
        batch.take();
        boolean filled = false;
        try {
            int status = (int) Native.weir_next.invokeExact(handle, nanos, batch.struct, batch.error);
            if (status == Native.WEIR_OK) {
                batch.filled(this);
                filled = true;
            } else if (status < 0) {
                throw batch.failure(status);
            } else if (status == Native.WEIR_END) {
                ended = true;
            }
            return status;
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        } finally {
            if (!filled) {
                batch.leave();
            }
        }
    }

    private volatile boolean ended;

    /** Whether a call has found the end: no batch comes any more. */
    public boolean isEnded() {
        return ended;
    }

    /** Stops the source: it takes no more packets. Packets that it received can still be pulled. */
    public void stop() {
        check(status(() -> (int) Native.weir_stop.invokeExact(handle)));
    }

    /**
     * Replaces the filter between two batches, without loss. {@link Batch#filter} tells which filter judged a batch.
     *
     * @param most longest wait until no batch begins under the old filter
     * @return the number of the new filter
     */
    public long setFilter(String filter, Duration most) {
        try (Arena local = Arena.ofConfined()) {
            MemorySegment number = local.allocate(ValueLayout.JAVA_LONG);
            MemorySegment error = local.allocate(ValueLayout.JAVA_LONG);
            int status = (int) Native.weir_set_filter.invokeExact(
                handle, text(local, filter), most.toNanos(), number, error);
            if (status != Native.WEIR_OK) {
                throw WeirException.of(status, error);
            }
            return number.get(ValueLayout.JAVA_LONG, 0);
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        }
    }

    /**
     * Replaces the rules of a source that was opened {@linkplain Options#withRules with rules}, between two batches, without loss.
     *
     * @throws WeirException the rules are wrong; the old ones stay
     */
    public void setRules(String rules) {
        try (Arena local = Arena.ofConfined()) {
            MemorySegment error = local.allocate(ValueLayout.JAVA_LONG);
            int status = (int) Native.weir_set_rules.invokeExact(handle, text(local, rules), error);
            if (status != Native.WEIR_OK) {
                throw WeirException.of(status, error);
            }
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        }
    }

    /**
     * Returns the counts: while the source is read, those between two batches; at its end the final ones. While a thread of the library waits for
     * bytes of a pipe it answers nothing: the call then takes 0.1 s, and gives the counts of before. While a capture runs, {@code received} is
     * the packets that were delivered or dropped; the final number is the kernel's own, unless a limit ended it.
     */
    public synchronized Counts counts() {
        try (Arena local = Arena.ofConfined()) {
            MemorySegment counts = local.allocate(Native.weir_counts.LAYOUT);
            check((int) Native.weir_counts_of.invokeExact(handle, counts));
            return counts(counts);
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        }
    }

    private static Counts counts(MemorySegment from) {
        return new Counts(
            from.get(ValueLayout.JAVA_LONG, Native.weir_counts.received),
            from.get(ValueLayout.JAVA_LONG, Native.weir_counts.passed),
            from.get(ValueLayout.JAVA_LONG, Native.weir_counts.filtered),
            from.get(ValueLayout.JAVA_LONG, Native.weir_counts.denied),
            from.get(ValueLayout.JAVA_LONG, Native.weir_counts.dropped_source),
            from.get(ValueLayout.JAVA_LONG, Native.weir_counts.dropped_output),
            from.get(ValueLayout.JAVA_LONG, Native.weir_counts.bytes),
            from.get(ValueLayout.JAVA_LONG, Native.weir_counts.lost_before),
            from.get(ValueLayout.JAVA_LONG, Native.weir_counts.waiting),
            from.get(ValueLayout.JAVA_LONG, Native.weir_counts.held),
            from.get(ValueLayout.JAVA_LONG, Native.weir_counts.starved),
            from.get(ValueLayout.JAVA_LONG, Native.weir_counts.is_final) == 1,
            from.get(ValueLayout.JAVA_LONG, Native.weir_counts.loss_not_recorded) == 1);
    }

    /** Returns what the user should know although nothing failed, a line each, since the last call; empty if there is nothing. */
    public String remarks() {
        try (Arena local = Arena.ofConfined()) {
            MemorySegment text = local.allocate(ValueLayout.JAVA_LONG);
            int status = (int) Native.weir_remarks.invokeExact(handle, text);
            check(status);
            return status == Native.WEIR_OK ? WeirException.read(text.get(ValueLayout.JAVA_LONG, 0)) : "";
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        }
    }

    /**
     * Closes the source and returns the final counts.
     *
     * @throws WeirException batches are out, or another thread waits for one: release them, {@link #stop}, and close again
     */
    public synchronized Counts end() {
        try (Arena local = Arena.ofConfined()) {
            MemorySegment counts = local.allocate(Native.weir_counts.LAYOUT);
            check((int) Native.weir_close.invokeExact(handle, counts));
            closed = true;
            FlightRecorder.removePeriodicEvent(recorded);
            Counts last = counts(counts);
            new CountsEvent().commit(name, last);
            return last;
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        }
    }

    /** Closes the source. Does nothing if it is closed. */
    @Override
    public void close() {
        if (!closed) {
            end();
        }
    }

    boolean isDebugged() {
        return debug;
    }

    private interface Call {
        int run() throws Throwable;
    }

    private static int status(Call call) {
        try {
            return call.run();
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        }
    }

    private static void check(int status) {
        if (status < 0) {
            throw WeirException.of(status, null);
        }
    }
}
