package weir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import weir.ffi.Native;

/**
 * Processors of this machine, numbered from 0 on as in {@code /proc/cpuinfo}.
 *
 * <p>A worker thread pins itself: it calls {@link #pin} first, before it opens its source, and stays on that processor.
 */
public final class Processors {
    private Processors() {}

    /** Returns the numbers of the processors that this thread may use, ascending. */
    public static int[] usable() {
        WeirException.checkLibrary();
        try (Arena local = Arena.ofConfined()) {
            MemorySegment count = local.allocate(ValueLayout.JAVA_INT);
            int found = 64;
            while (true) {
                int room = found;
                MemorySegment cpus = local.allocate(ValueLayout.JAVA_INT, room);
                int status = (int) Native.weir_cpus.invokeExact(cpus, room, count);
                if (status != Native.WEIR_OK) {
                    throw WeirException.of(status, null);
                }
                found = count.get(ValueLayout.JAVA_INT, 0);
                if (found <= room) {
                    return cpus.asSlice(0, 4L * found).toArray(ValueLayout.JAVA_INT);
                }
            }
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        }
    }

    /**
     * Binds the calling thread to a processor. A source that this thread opens afterwards reads on the same processor, because threads
     * inherit the binding: open it first if the library shall read elsewhere.
     *
     * @throws IllegalStateException the thread is a virtual one, which no processor can be bound to
     * @throws IllegalArgumentException there is no such processor, or this process may not use it
     */
    public static void pin(int cpu) {
        WeirException.checkLibrary();
        if (Thread.currentThread().isVirtual()) {
            throw new IllegalStateException("a virtual thread cannot be bound to a processor: use a platform thread");
        }
        int status;
        try {
            status = (int) Native.weir_pin_thread.invokeExact(cpu);
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        }
        if (status != Native.WEIR_OK) {
            throw new IllegalArgumentException("processor " + cpu + " cannot be used by this process");
        }
    }
}
