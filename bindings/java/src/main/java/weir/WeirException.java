package weir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import weir.ffi.Library;
import weir.ffi.Native;

/**
 * A call that did not do its work, with the line that the weir command would print. A line that names a flag, such as {@code --ring} or
 * {@code --memory}, means the option of that name, here of {@link Options} or {@link MeasureOptions}.
 */
public final class WeirException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final int status;

    WeirException(int status, String message) {
        super(message);
        this.status = status;
    }

    /** Returns the status of the C library: one of the negative constants of {@link Native}, or 0 if the library cannot be loaded. */
    public int status() {
        return status;
    }

    /** Throws if the library cannot be used. */
    static void checkLibrary() {
        if (Library.failure() != null) {
            throw new WeirException(0, Library.failure());
        }
    }

    /** Makes the exception for a status; {@code error} holds the handle of a text, which is freed, or 0. */
    static WeirException of(int status, MemorySegment error) {
        long text = error == null ? 0 : error.get(ValueLayout.JAVA_LONG, 0);
        return new WeirException(status, text == 0 ? words(status) : read(text));
    }

    /** Reads a text, which stays. */
    static String peek(long text) throws Throwable {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment bytes = arena.allocate(ValueLayout.ADDRESS);
            int status = (int) Native.weir_text_read.invokeExact(text, bytes, MemorySegment.NULL);
            return status == Native.WEIR_OK
                ? bytes.get(ValueLayout.ADDRESS, 0).reinterpret(Long.MAX_VALUE).getString(0)
                : words(status);
        }
    }

    /** Reads and frees a text. */
    static String read(long text) {
        try {
            String line = peek(text);
            int freed = (int) Native.weir_text_free.invokeExact(text);
            return line;
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    static String words(int status) {
        return switch (status) {
            case Native.WEIR_CLOSED -> "it is closed, or was released";
            case Native.WEIR_BUSY -> "it is in use: by another call, or by batches that were not released";
            case Native.WEIR_FORKED -> "it was made before a fork, by the parent of this process";
            case Native.WEIR_FULL -> "there is no room for another object";
            default -> "weir failed with status " + status;
        };
    }

    /** Wraps what a downcall itself throws. */
    static RuntimeException unexpected(Throwable e) {
        if (e instanceof LinkageError) {
            Throwable why = e.getCause() == null ? e : e.getCause();
            return new WeirException(0, "the library libweir.so cannot be used: " + why.getMessage());
        }
        return e instanceof RuntimeException known ? known : new IllegalStateException(e);
    }
}
