package weir;

import weir.ffi.Native;

/**
 * A packet of a batch, where it lies: one object, pointed at packet after packet by {@link #at}. Each access is checked: against the
 * captured bytes, the release of the batch, and the thread that holds it.
 *
 * <p>Numbers are as on the wire: unsigned ones in the next larger type, addresses of IPv4 in an {@code int}, 10.0.0.1 being
 * {@code 0x0a000001}. <b>Cost</b>: a few loads and comparisons an access; no allocation.
 *
 * <p>Headers are found behind Ethernet with VLAN tags, in raw IP, loopback and Linux cooked captures. Of a fragment other than the
 * first the ports and flags are not there: {@link #hasPorts} tells.
 */
public final class Packet {
    private static final int ETHERNET = 1;
    private static final int UNKNOWN = -1;
    private static final int NONE = -2;

    private final Batch batch;
    private long region;
    private long packets;
    /** Number of packets of the batch; 0 while none is held. */
    private int size;
    private int linkType;
    /** The thread that holds the batch. */
    private Thread owner;
    private long descriptor;
    private long address;
    /** Captured bytes; -1 while no batch is held, so that each access fails. */
    private int captured = -1;
    private int etherType;
    /** Offset of the IP header; UNKNOWN until asked for, NONE without one. */
    private int network;

    Packet(Batch batch) {
        this.batch = batch;
    }

    void begin(long region, long packets, int size, int linkType) {
        this.region = region;
        this.packets = packets;
        this.size = size;
        this.linkType = linkType;
        owner = Thread.currentThread();
    }

    void end() {
        size = 0;
        captured = -1;
        network = UNKNOWN;
    }

    /** Points at packet {@code number} of the batch, counted from 0 on. Returns this. */
    public Packet at(int number) {
        if (number < 0 || number >= size || Thread.currentThread() != owner) {
            throw outside(number);
        }
        long at = packets + (long) Batch.DESCRIPTOR * number;
        descriptor = at;
        address = region + Memory.nativeLong(at);
        captured = Memory.nativeInt(at + Native.weir_descriptor.captured);
        network = UNKNOWN;
        return this;
    }

    private RuntimeException outside(int number) {
        batch.checkHeld();
        return new IndexOutOfBoundsException("packet " + number + " of " + size);
    }

    /** Returns the address of {@code bytes} bytes at an offset, all of which were captured. */
    private long checked(int offset, int bytes) {
        if ((offset | captured - bytes - offset) < 0 || Thread.currentThread() != owner) {
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

    private void checkHeld() {
        checked(0, 0);
    }

    /** Returns the captured length, bytes. */
    public int captured() {
        checkHeld();
        return captured;
    }

    /** Returns the length on the wire without FCS and preamble, bytes. */
    public long wireLength() {
        checkHeld();
        return Integer.toUnsignedLong(Memory.nativeInt(descriptor + Native.weir_descriptor.wire_len));
    }

    /** Returns the time of capture, ns since 1970; {@link Long#MIN_VALUE} if there is no time stamp. */
    public long timeNanos() {
        checkHeld();
        return Memory.nativeLong(descriptor + Native.weir_descriptor.time_ns);
    }

    /** Returns the index of the interface in the source. */
    public int interfaceIndex() {
        checkHeld();
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
        long start = checked(offset, bytes);
        java.lang.foreign.MemorySegment.copy(Memory.ALL, java.lang.foreign.ValueLayout.JAVA_BYTE, start, to, from, bytes);
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
        network();
        return etherType;
    }

    /** Returns the identifier of the outermost VLAN tag; -1 without one. */
    public int vlan() {
        checkHeld();
        if (batch.link(interfaceIndex()) != ETHERNET || captured < 18 || !isTag(shortAt(12))) {
            return -1;
        }
        return shortAt(14) & 0xfff;
    }

    private static boolean isTag(int type) {
        return type == 0x8100 || type == 0x88a8 || type == 0x9100;
    }

    /** Returns the offset of the IP header; negative without one. */
    private int network() {
        if (network == UNKNOWN) {
            checkHeld();
            // Most packets are of IPv4 without a tag.
            if (linkType == ETHERNET && captured >= 34 && Memory.intAt(address + 12) >>> 12 == 0x0800_4) {
                etherType = 0x0800;
                network = 14;
                return 14;
            }
            return findNetwork();
        }
        return network;
    }

    private int findNetwork() {
        checkHeld();
        int at;
        switch (batch.link(interfaceIndex())) {
            case ETHERNET -> {
                at = 12;
                while (captured >= at + 6 && isTag(shortAt(at))) {
                    at += 4;
                }
                etherType = captured >= at + 2 ? shortAt(at) : 0;
                at += 2;
            }
            // Raw IP, loopback, Linux cooked captures of both versions.
            case 101, 228, 229 -> at = rawIp(0);
            case 0, 108 -> at = rawIp(4);
            case 113 -> at = ofType(14);
            case 276 -> at = ofType(0) < 0 ? NONE : 20;
            default -> {
                etherType = 0;
                at = NONE;
            }
        }
        boolean isIp = etherType == 0x0800 && captured >= at + 20 && byteAt(at) >> 4 == 4
            || etherType == 0x86dd && captured >= at + 40 && byteAt(at) >> 4 == 6;
        network = isIp ? at : NONE;
        return network;
    }

    private int rawIp(int at) {
        int version = captured > at ? byteAt(at) >> 4 : 0;
        etherType = version == 4 ? 0x0800 : version == 6 ? 0x86dd : 0;
        return at;
    }

    private int ofType(int at) {
        etherType = captured >= at + 2 ? shortAt(at) : 0;
        return at + 2;
    }

    /** Returns 4 or 6, and 0 without a whole IP header. */
    public int ipVersion() {
        return network() < 0 ? 0 : etherType == 0x0800 ? 4 : 6;
    }

    /** Whether there is a whole IPv4 header. */
    public boolean isIpv4() {
        return network() >= 0 && etherType == 0x0800;
    }

    /** Whether there is a whole IPv6 header. */
    public boolean isIpv6() {
        return network() >= 0 && etherType == 0x86dd;
    }

    private int ipv4() {
        int at = network();
        if (at < 0 || etherType != 0x0800) {
            throw new IllegalStateException("the packet is none of IPv4");
        }
        return at;
    }

    private int ipv6() {
        int at = network();
        if (at < 0 || etherType != 0x86dd) {
            throw new IllegalStateException("the packet is none of IPv6");
        }
        return at;
    }

    /** Returns the source address of IPv4. */
    public int ipv4Source() {
        return intAt(ipv4() + 12);
    }

    /** Returns the destination address of IPv4. */
    public int ipv4Destination() {
        return intAt(ipv4() + 16);
    }

    /** Returns the total length of IPv4, bytes. */
    public int ipv4TotalLength() {
        return shortAt(ipv4() + 2);
    }

    /** Returns the length of the IPv4 header, bytes. */
    public int ipv4HeaderLength() {
        return (byteAt(ipv4()) & 0xf) * 4;
    }

    /** Returns the time to live of IPv4, or the hop limit of IPv6. */
    public int hopLimit() {
        return isIpv4() ? byteAt(network() + 8) : byteAt(ipv6() + 7);
    }

    /** Returns the upper half of the source address of IPv6. */
    public long ipv6SourceHigh() {
        return longAt(ipv6() + 8);
    }

    /** Returns the lower half of the source address of IPv6. */
    public long ipv6SourceLow() {
        return longAt(ipv6() + 16);
    }

    /** Returns the upper half of the destination address of IPv6. */
    public long ipv6DestinationHigh() {
        return longAt(ipv6() + 24);
    }

    /** Returns the lower half of the destination address of IPv6. */
    public long ipv6DestinationLow() {
        return longAt(ipv6() + 32);
    }

    /** Returns the IP protocol number: of IPv6 that in the fixed header, which may be one of an extension header; -1 without IP. */
    public int protocol() {
        int at = network();
        return at < 0 ? -1 : byteAt(at + (etherType == 0x0800 ? 9 : 6));
    }

    private boolean isFirstFragment() {
        return !isIpv4() || (shortAt(network() + 6) & 0x1fff) == 0;
    }

    /** Returns the offset of the transport header; -1 if there is none, as in a fragment other than the first. */
    public int transportOffset() {
        int at = network();
        if (at < 0 || !isFirstFragment()) {
            return -1;
        }
        return at + (etherType == 0x0800 ? ipv4HeaderLength() : 40);
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
        return protocol() == (etherType == 0x0800 ? 1 : 58) && at >= 0 && captured >= at + 2;
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
