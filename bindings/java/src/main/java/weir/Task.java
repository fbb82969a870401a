package weir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import weir.ffi.Native;

/** Calls of {@link Measurement} and {@link Recorder} that give a text. */
final class Task {
    private Task() {}

    interface Call {
        int run(Arena arena, MemorySegment result, MemorySegment error) throws Throwable;
    }

    /** Returns the text that a call gives; {@code null} if it gives none. */
    static String text(Call call) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment text = arena.allocate(ValueLayout.JAVA_LONG);
            MemorySegment error = arena.allocate(ValueLayout.JAVA_LONG);
            int status = call.run(arena, text, error);
            if (status < 0) {
                // A call may fail and give a text all the same.
                Native.weir_text_free.invoke(text.get(ValueLayout.JAVA_LONG, 0));
                throw WeirException.of(status, error);
            }
            return status == Native.WEIR_OK ? WeirException.read(text.get(ValueLayout.JAVA_LONG, 0)) : null;
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        }
    }

    /** Returns the handle that a call opens. */
    static long open(Call call) {
        WeirException.checkLibrary();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment handle = arena.allocate(ValueLayout.JAVA_LONG);
            MemorySegment error = arena.allocate(ValueLayout.JAVA_LONG);
            int status = call.run(arena, handle, error);
            if (status != Native.WEIR_OK) {
                throw WeirException.of(status, error);
            }
            return handle.get(ValueLayout.JAVA_LONG, 0);
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        }
    }

    /** Nanoseconds of a wait; the largest number for a longer wait. */
    static long nanos(Duration wait) {
        try {
            return wait.toNanos();
        } catch (ArithmeticException e) {
            return Long.MAX_VALUE;
        }
    }
}
