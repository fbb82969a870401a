package weir;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;

/** Memory at addresses. Who calls has checked them. */
final class Memory {
    /** All memory: a constant, so that no range is checked. */
    static final MemorySegment ALL = MemorySegment.NULL.reinterpret(Long.MAX_VALUE);

    private static final ValueLayout.OfShort SHORT =
        ValueLayout.JAVA_SHORT_UNALIGNED.withOrder(ByteOrder.BIG_ENDIAN);
    private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT_UNALIGNED.withOrder(ByteOrder.BIG_ENDIAN);
    private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED.withOrder(ByteOrder.BIG_ENDIAN);

    private Memory() {}

    static byte byteAt(long address) {
        return ALL.get(ValueLayout.JAVA_BYTE, address);
    }

    /** In network order, as the next two. */
    static short shortAt(long address) {
        return ALL.get(SHORT, address);
    }

    static int intAt(long address) {
        return ALL.get(INT, address);
    }

    static long longAt(long address) {
        return ALL.get(LONG, address);
    }

    /** In native order, as the next one. */
    static int nativeInt(long address) {
        return ALL.get(ValueLayout.JAVA_INT_UNALIGNED, address);
    }

    static long nativeLong(long address) {
        return ALL.get(ValueLayout.JAVA_LONG_UNALIGNED, address);
    }
}
