package weir;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;

/**
 * Memory at addresses. Callers have checked them.
 *
 * <p>Addresses are masked, because C2 then knows that each of them lies in {@link #ALL}, and drops the comparison with its bounds that
 * an access has otherwise. Without the mask each access is a comparison and a branch dearer: a firewall over packets in the cache took
 * 2.1 ns a packet, with it 1.45. Where C2 knows that an address has the bits of {@link #USER} only, the second mask costs nothing.
 */
final class Memory {
    /** All memory: a constant, so that no range is checked. */
    static final MemorySegment ALL = MemorySegment.NULL.reinterpret(Long.MAX_VALUE);

    private static final ValueLayout.OfShort SHORT =
        ValueLayout.JAVA_SHORT_UNALIGNED.withOrder(ByteOrder.BIG_ENDIAN);
    private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT_UNALIGNED.withOrder(ByteOrder.BIG_ENDIAN);
    private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED.withOrder(ByteOrder.BIG_ENDIAN);

    /** Bits of all addresses that a process can have: of x86-64 and of AArch64 with the largest page tables. */
    static final long USER = (1L << 56) - 1;

    /** Bits of {@link #USER}, and room for any offset. */
    private static final long NEAR = (1L << 62) - 1;

    private Memory() {}

    static byte byteAt(long address) {
        return ALL.get(ValueLayout.JAVA_BYTE, address & NEAR);
    }

    /** In network order, as the next two. */
    static short shortAt(long address) {
        return ALL.get(SHORT, address & NEAR);
    }

    static int intAt(long address) {
        return ALL.get(INT, address & NEAR);
    }

    static long longAt(long address) {
        return ALL.get(LONG, address & NEAR);
    }

    /** In native order, as the next method. */
    static int nativeInt(long address) {
        return ALL.get(ValueLayout.JAVA_INT_UNALIGNED, address & NEAR);
    }

    static long nativeLong(long address) {
        return ALL.get(ValueLayout.JAVA_LONG_UNALIGNED, address & NEAR);
    }
}
