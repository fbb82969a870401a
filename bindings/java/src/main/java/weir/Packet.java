package weir;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.util.Objects;
import weir.ffi.Native;

/**
 * A packet of a batch, where it lies: one object, pointed at packet after packet by {@link #at}. Each access is checked: against the
 * captured bytes, the release of the batch, and the thread that holds it.
 *
 * <p>Numbers are as on the wire: unsigned ones in the next larger type, addresses of IPv4 in an {@code int}, 10.0.0.1 being
 * {@code 0x0a000001}. <b>Cost</b>: a few loads and comparisons an access; no allocation.
 * In a loop over the packets of a batch, C2 moves the checks of thread, release and packet number in front of the loop.
 *
 * <p>Headers are found behind Ethernet with VLAN tags, in raw IP, loopback and Linux cooked captures. Of a fragment other than the
 * first the ports and flags are not there: {@link #hasPorts} tells.
 */
public final class Packet {
    private static final int ETHERNET = 1;
    private static final int UNKNOWN = -1;
    /** Offset of the IP header in {@link #headers} of a packet without one. */
    private static final int NONE = 0xfffe;
    /** EtherType, version and header length of IPv4, bytes 12 to 15 of most frames: which bits to look at, and what they are. */
    private static final int IPV4_BITS = inOrder(0xffff_f000);

    private static final int IPV4 = inOrder(0x0800_4000);
    /** {@link #headers} of IPv4 behind Ethernet without a tag. */
    private static final int PLAIN_IPV4 = 0x0800 << 16 | 14;

    private final Batch batch;
    private long region;
    private long packets;
    /** Number of packets of the batch. */
    private int size;
    private int linkType;
    /** The thread that holds the batch, {@code null} for none: it alone passes the check of each access. Only a thread itself writes its
     * name here, and {@code null} over it at the release, so a thread that reads its name holds the batch. */
    private Thread holder;
    private long descriptor;
    private long address;
    /** Captured bytes; -1 while the packet was not pointed, so that each access fails. */
    private int captured = -1;
    /** EtherType in the upper half, offset of the IP header or NONE in the lower one; UNKNOWN until asked for. */
    private int headers = UNKNOWN;

    Packet(Batch batch) {
        this.batch = batch;
    }

    /** Makes a constant for a comparison with four bytes in native order. */
    private static int inOrder(int network) {
        return ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN ? Integer.reverseBytes(network) : network;
    }

    void begin(long region, long packets, int size, int linkType) {
        this.region = region;
        this.packets = packets;
        this.size = size;
        this.linkType = linkType;
        captured = -1;
        headers = UNKNOWN;
        holder = Thread.currentThread();
    }

    void end() {
        holder = null;
    }

    /** Points at packet {@code number} of the batch, counted from 0 on. Returns this. */
    public Packet at(int number) {
        if (Thread.currentThread() != holder) {
            throw batch.refused();
        }
        Objects.checkIndex(number, size);
        long at = packets + (long) Batch.DESCRIPTOR * number & Memory.USER;
        descriptor = at;
        address = region + Memory.nativeLong(at) & Memory.USER;
        // C2 learns that the number is not negative, and drops the check for a packet that was not pointed.
        captured = Memory.nativeInt(at + Native.weir_descriptor.captured) & Integer.MAX_VALUE;
        headers = UNKNOWN;
        return this;
    }

    /** Returns the address of {@code bytes} bytes at an offset, all of which were captured. */
    private long checked(int offset, int bytes) {
        if (Thread.currentThread() != holder || (offset | captured - bytes - offset) < 0) {
            throw uncaptured(offset, bytes);
        }
        return address + offset;
    }

    private RuntimeException uncaptured(int offset, int bytes) {
        batch.checkHeld();
        return captured < 0
            ? new IllegalStateException("the packet was not pointed at one of this batch")
            : new IndexOutOfBoundsException(offset + " to " + (offset + bytes) + " of " + captured + " captured bytes");
    }

    private void checkPointed() {
        if (Thread.currentThread() != holder || captured < 0) {
            throw uncaptured(0, 0);
        }
    }

    /** Returns the captured length, bytes. */
    public int captured() {
        checkPointed();
        return captured;
    }

    /** Returns the length on the wire without FCS and preamble, bytes. */
    public long wireLength() {
        checkPointed();
        return Integer.toUnsignedLong(Memory.nativeInt(descriptor + Native.weir_descriptor.wire_len));
    }

    /** Returns the time of capture, ns since 1970; {@link Long#MIN_VALUE} if there is no time stamp. */
    public long timeNanos() {
        checkPointed();
        return Memory.nativeLong(descriptor + Native.weir_descriptor.time_ns);
    }

    /** Returns the index of the interface in the source. */
    public int interfaceIndex() {
        checkPointed();
        return Memory.nativeInt(descriptor + Native.weir_descriptor.interface_);
    }

    /** Returns the byte at an offset, 0 to 255. */
    public int byteAt(int offset) {
        return Memory.byteAt(checked(offset, 1)) & 0xff;
    }

    /** Returns two bytes at an offset, 0 to 65535. */
    public int shortAt(int offset) {
        return Memory.shortAt(checked(offset, 2)) & 0xffff;
    }

    /** Returns four bytes at an offset. */
    public int intAt(int offset) {
        return Memory.intAt(checked(offset, 4));
    }

    /** Returns eight bytes at an offset. */
    public long longAt(int offset) {
        return Memory.longAt(checked(offset, 8));
    }

    /** Copies captured bytes from an offset on. */
    public void copyTo(int offset, byte[] to, int from, int bytes) {
        Objects.checkFromIndexSize(from, bytes, to.length);
        long start = checked(offset, bytes);
        MemorySegment.copy(Memory.ALL, ValueLayout.JAVA_BYTE, start, to, from, bytes);
    }

    /** Returns the destination address of Ethernet, in the lower 48 bits. */
    public long ethernetDestination() {
        return longAt(0) >>> 16;
    }

    /** Returns the source address of Ethernet, in the lower 48 bits. */
    public long ethernetSource() {
        return (long) shortAt(6) << 32 | Integer.toUnsignedLong(intAt(8));
    }

    /** Returns the EtherType behind VLAN tags; 0 if the captured bytes tell none. */
    public int etherType() {
        return headers() >>> 16;
    }

    /** Returns the identifier of the outermost VLAN tag; -1 without one. */
    public int vlan() {
        checkPointed();
        if (batch.link(interfaceIndex()) != ETHERNET || captured < 18 || !isTag(shortAt(12))) {
            return -1;
        }
        return shortAt(14) & 0xfff;
    }

    private static boolean isTag(int type) {
        return type == 0x8100 || type == 0x88a8 || type == 0x9100;
    }

    /** Returns EtherType and offset of the IP header. All bytes of a fixed IP header that is named here were captured. */
    private int headers() {
        if (Thread.currentThread() != holder) {
            throw batch.refused();
        }
        if (headers == UNKNOWN) {
            // Most packets are of IPv4 without a tag.
            if (captured >= 34 && linkType == ETHERNET && (Memory.nativeInt(address + 12) & IPV4_BITS) == IPV4) {
                headers = PLAIN_IPV4;
                return PLAIN_IPV4;
            }
            return findHeaders();
        }
        return headers;
    }

    private int findHeaders() {
        checkPointed();
        long found = switch (batch.link(interfaceIndex())) {
            case ETHERNET -> {
                int at = 12;
                while (captured >= at + 6 && isTag(shortAt(at))) {
                    at += 4;
                }
                yield typed(at);
            }
            // Raw IP, loopback, Linux cooked captures of both versions.
            case 101, 228, 229 -> rawIp(0);
            case 0, 108 -> rawIp(4);
            case 113 -> typed(14);
            case 276 -> typed(0) & ~0xffff_ffffL | 20;
            default -> NONE;
        };
        int etherType = (int) (found >>> 32);
        int at = (int) found;
        boolean isIp = etherType == 0x0800 && captured >= at + 20 && byteAt(at) >> 4 == 4
            || etherType == 0x86dd && captured >= at + 40 && byteAt(at) >> 4 == 6;
        // Tags of nearly 64 KiB are those of no real frame.
        headers = etherType << 16 | (isIp && at < NONE ? at : NONE);
        return headers;
    }

    /** Returns the EtherType for the version of an IP header in the upper half, its offset in the lower one. */
    private long rawIp(int at) {
        int version = captured > at ? byteAt(at) >> 4 : 0;
        return (version == 4 ? 0x0800L : version == 6 ? 0x86ddL : 0) << 32 | at;
    }

    /** Returns the EtherType at an offset in the upper half, the offset behind it in the lower one. */
    private long typed(int at) {
        return (captured >= at + 2 ? (long) shortAt(at) : 0) << 32 | at + 2;
    }

    private static boolean hasIp(int headers) {
        return (headers & 0xffff) != NONE;
    }

    private static boolean isIpv4(int headers) {
        return hasIp(headers) && headers >>> 16 == 0x0800;
    }

    private static boolean isIpv6(int headers) {
        return hasIp(headers) && headers >>> 16 == 0x86dd;
    }

    /** Returns 4 or 6, and 0 without a whole IP header. */
    public int ipVersion() {
        int headers = headers();
        return isIpv4(headers) ? 4 : hasIp(headers) ? 6 : 0;
    }

    /** Whether there is a whole IPv4 header. */
    public boolean isIpv4() {
        return isIpv4(headers());
    }

    /** Whether there is a whole IPv6 header. */
    public boolean isIpv6() {
        return isIpv6(headers());
    }

    /** Returns the address of the IPv4 header, of which the fixed part was captured. */
    private long ipv4() {
        int headers = headers();
        if (!isIpv4(headers)) {
            throw new IllegalStateException("the packet is none of IPv4");
        }
        return address + (headers & 0xffff);
    }

    private long ipv6() {
        int headers = headers();
        if (!isIpv6(headers)) {
            throw new IllegalStateException("the packet is none of IPv6");
        }
        return address + (headers & 0xffff);
    }

    /** Returns the source address of IPv4. */
    public int ipv4Source() {
        return Memory.intAt(ipv4() + 12);
    }

    /** Returns the destination address of IPv4. */
    public int ipv4Destination() {
        return Memory.intAt(ipv4() + 16);
    }

    /** Returns the total length of IPv4, bytes. */
    public int ipv4TotalLength() {
        return Memory.shortAt(ipv4() + 2) & 0xffff;
    }

    /** Returns the length of the IPv4 header, bytes. */
    public int ipv4HeaderLength() {
        return (Memory.byteAt(ipv4()) & 0xf) * 4;
    }

    /** Returns the time to live of IPv4, or the hop limit of IPv6. */
    public int hopLimit() {
        return Memory.byteAt(isIpv4() ? ipv4() + 8 : ipv6() + 7) & 0xff;
    }

    /** Returns the upper half of the source address of IPv6. */
    public long ipv6SourceHigh() {
        return Memory.longAt(ipv6() + 8);
    }

    /** Returns the lower half of the source address of IPv6. */
    public long ipv6SourceLow() {
        return Memory.longAt(ipv6() + 16);
    }

    /** Returns the upper half of the destination address of IPv6. */
    public long ipv6DestinationHigh() {
        return Memory.longAt(ipv6() + 24);
    }

    /** Returns the lower half of the destination address of IPv6. */
    public long ipv6DestinationLow() {
        return Memory.longAt(ipv6() + 32);
    }

    /** Returns the IP protocol number: of IPv6 that in the fixed header, which may be one of an extension header; -1 without IP. */
    public int protocol() {
        int headers = headers();
        if (!hasIp(headers)) {
            return -1;
        }
        return Memory.byteAt(address + (headers & 0xffff) + (isIpv4(headers) ? 9 : 6)) & 0xff;
    }

    private boolean isFirstFragment() {
        return !isIpv4() || (Memory.shortAt(ipv4() + 6) & 0x1fff) == 0;
    }

    /** Returns the offset of the transport header; -1 if there is none, as in a fragment other than the first. */
    public int transportOffset() {
        int headers = headers();
        if (!hasIp(headers) || !isFirstFragment()) {
            return -1;
        }
        return (headers & 0xffff) + (isIpv4(headers) ? ipv4HeaderLength() : 40);
    }

    /** Whether this is TCP, with its ports captured. */
    public boolean isTcp() {
        return protocol() == 6 && hasPorts();
    }

    /** Whether this is UDP, with its ports captured. */
    public boolean isUdp() {
        return protocol() == 17 && hasPorts();
    }

    /** Whether this is ICMP or ICMPv6, with its type captured. */
    public boolean isIcmp() {
        int at = transportOffset();
        return protocol() == (isIpv4() ? 1 : 58) && at >= 0 && captured >= at + 2;
    }

    /** Whether the protocol has ports and they are captured. */
    public boolean hasPorts() {
        int protocol = protocol();
        boolean has = protocol == 6 || protocol == 17 || protocol == 132 || protocol == 33 || protocol == 136;
        int at = has ? transportOffset() : -1;
        return at >= 0 && captured >= at + 4;
    }

    private int transport() {
        int at = transportOffset();
        if (at < 0) {
            throw new IllegalStateException("the packet has no transport header");
        }
        return at;
    }

    /** Returns the source port. */
    public int sourcePort() {
        return shortAt(transport());
    }

    /** Returns the destination port. */
    public int destinationPort() {
        return shortAt(transport() + 2);
    }

    /** Returns the flags of TCP: FIN is the lowest bit, then SYN, RST, PSH, ACK, URG, ECE, CWR. */
    public int tcpFlags() {
        return byteAt(transport() + 13);
    }

    /** Returns the sequence number of TCP. */
    public long tcpSequence() {
        return Integer.toUnsignedLong(intAt(transport() + 4));
    }

    /** Returns the acknowledgment number of TCP. */
    public long tcpAcknowledgment() {
        return Integer.toUnsignedLong(intAt(transport() + 8));
    }

    /** Returns the offset of the payload of TCP or UDP. */
    public int payloadOffset() {
        int at = transport();
        return protocol() == 6 ? at + (byteAt(at + 12) >> 4) * 4 : at + 8;
    }

    /** Returns the type of an ICMP message. */
    public int icmpType() {
        return byteAt(transport());
    }

    /** Returns the code of an ICMP message. */
    public int icmpCode() {
        return byteAt(transport() + 1);
    }
}
