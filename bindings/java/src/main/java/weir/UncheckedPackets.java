package weir;

import weir.ffi.Native;

/**
 * Packets by their addresses, without any check: for experts who measured that the checks of {@link Packet} cost too much.
 *
 * <p>A wrong address or offset, or an access after the release of the batch, reads any memory of the process or ends it. Ask
 * {@link #captured} before you read.
 */
public final class UncheckedPackets {
    private UncheckedPackets() {}

    private static long descriptor(Batch batch, int number) {
        return batch.packets + (long) Batch.DESCRIPTOR * number & Memory.USER;
    }

    /** Returns the address of packet {@code number}. The batch must be held, and have so many packets. */
    public static long address(Batch batch, int number) {
        return batch.region + Memory.nativeLong(descriptor(batch, number)) & Memory.USER;
    }

    /** Returns the captured length of packet {@code number}, bytes. */
    public static int captured(Batch batch, int number) {
        return Memory.nativeInt(descriptor(batch, number) + Native.weir_descriptor.captured);
    }

    /** Returns the length on the wire of packet {@code number}, bytes. */
    public static int wireLength(Batch batch, int number) {
        return Memory.nativeInt(descriptor(batch, number) + Native.weir_descriptor.wire_len);
    }

    /** Returns the byte at an address. */
    public static byte byteAt(long address) {
        return Memory.byteAt(address);
    }

    /** Returns two bytes at an address, in network order. */
    public static short shortAt(long address) {
        return Memory.shortAt(address);
    }

    /** Returns four bytes at an address, in network order. */
    public static int intAt(long address) {
        return Memory.intAt(address);
    }

    /** Returns eight bytes at an address, in network order. */
    public static long longAt(long address) {
        return Memory.longAt(address);
    }
}
