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
 * <p>Headers are those of the outermost IP packet, as {@link Columns} has them: the same walk of the library finds both, on every link type
 * that it knows. A method that needs a header which is not there throws {@link IllegalStateException}; {@link #ipVersion},
 * {@link #hasPorts}, {@link #isTcp} and {@link #isIcmp} ask before. Of a fragment other than the first there is no transport header.
 * Most packets of Ethernet cost a few loads; for others the library is asked about some packets at once, at some ten nanoseconds each.
 */
public final class Packet {
    private static final int ETHERNET = 1;
    private static final int LINUX_SLL = 113;
    private static final int LINUX_SLL2 = 276;
    private static final int UNKNOWN = -1;
    /** Bytes of a header of Ethernet, and of a VLAN tag in it. */
    private static final int LINK = 14;

    private static final int TAG = 4;
    /** EtherType, version and header length of IPv4 without options, bytes 12 to 14: which bits to look at, and what they are. */
    private static final int IPV4_BITS = inOrder(0xffff_ff00);

    private static final int IPV4 = inOrder(0x0800_4500);
    /** EtherType and version of IPv6. */
    private static final int IPV6_BITS = inOrder(0xffff_f000);

    private static final int IPV6 = inOrder(0x86dd_6000);
    private static final int TCP = 6;
    private static final int UDP = 17;
    private static final int ICMP = 1;
    private static final int ICMP6 = 58;
    /** Packets about which the library is asked at once: at first, and while they come one behind the other. */
    private static final int FEW = 8;

    private static final int MANY = 64;

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
    /** 4, 6, or 0 without IP; UNKNOWN until asked for. With it, the next four are known. */
    private int version = UNKNOWN;
    /** Offsets of the IP header and of the transport header; -1 for none. */
    private int network;

    private int transport;
    /** Protocol of the transport; -1 if it is unknown. */
    private int protocol;
    /** Row of {@link #asked} that has the headers; -1 if they were found without it. */
    private int row;
    /** Headers of packets {@link #first} to {@link #behind}, as the library found them; {@code null} before the first question. */
    private Columns asked;

    private int first;
    private int behind;

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
        version = UNKNOWN;
        first = 0;
        behind = 0;
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
        version = UNKNOWN;
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

    /** Returns the EtherType behind VLAN tags, and for link types without one that of IP; 0 if the captured bytes tell none. */
    public int etherType() {
        checkPointed();
        int link = batch.link(interfaceIndex());
        int at = link == ETHERNET ? 12 : link == LINUX_SLL ? 14 : link == LINUX_SLL2 ? 0 : captured;
        while (captured >= at + 6 && isTag(shortAt(at))) {
            // In front of the first tag, the second version of a cooked header has more fields than the type.
            at += at == 0 ? 22 : 4;
        }
        int type = captured >= at + 2 ? shortAt(at) : 0;
        // Lesser numbers are lengths (IEEE 802.3, clause 3.2.6).
        return type >= 0x0600 ? type : isIpv4() ? 0x0800 : isIpv6() ? 0x86dd : 0;
    }

    /** Returns the identifier of the outermost VLAN tag; -1 without one. */
    public int vlan() {
        checkPointed();
        if (batch.link(interfaceIndex()) == ETHERNET) {
            return captured >= 16 && isTag(shortAt(12)) ? shortAt(14) & 0xfff : -1;
        }
        ask();
        int vlan = asked.getInt(Field.VLAN, row);
        return vlan == 0xffff ? -1 : vlan;
    }

    private static boolean isTag(int type) {
        return type == 0x8100 || type == 0x88a8 || type == 0x9100;
    }

    /** Returns 4, 6, or 0 without IP. All bytes of a fixed IP header were captured. */
    private int version() {
        if (Thread.currentThread() != holder) {
            throw batch.refused();
        }
        if (version == UNKNOWN) {
            find();
        }
        return version;
    }

    /** Finds the headers: in most frames of Ethernet here, where the walk of the library finds the same; else the library is asked. */
    private void find() {
        if (linkType != ETHERNET || captured < LINK + 24 + TAG || !findPlain(isTagged() ? LINK + TAG : LINK)) {
            ask();
        }
    }

    private boolean isTagged() {
        return Memory.shortAt(address + 12) == (short) 0x8100;
    }

    /** Finds the headers behind an Ethernet header of so many bytes. Returns whether the frame is one of the usual kinds. */
    private boolean findPlain(int at) {
        int head = Memory.nativeInt(address + at - 2);
        if ((head & IPV4_BITS) == IPV4) {
            // Total length, identification, flags and fragment offset, time to live, protocol.
            long rest = Memory.longAt(address + at + 2);
            int next = (int) rest & 0xff;
            boolean isPlain = rest >>> 48 >= 24 && next != 51 && next != 59 && next != 255;
            return isPlain && found(4, at, (rest & 0x1fff_0000) == 0 ? at + 20 : -1, next);
        }
        if ((head & IPV6_BITS) == IPV6) {
            int next = Memory.byteAt(address + at + 6) & 0xff;
            int length = Memory.shortAt(address + at + 4) & 0xffff;
            return captured >= at + 44 && length >= 4 && !isExtension(next) && next != 255 && found(6, at, at + 40, next);
        }
        return isForeign(Memory.shortAt(address + at - 2) & 0xffff) && found(0, -1, -1, UNKNOWN);
    }

    private boolean found(int version, int network, int transport, int protocol) {
        this.version = version;
        this.network = network;
        this.transport = transport;
        this.protocol = protocol;
        row = -1;
        return true;
    }

    /** Whether neither IP nor a header behind which IP may follow has this EtherType. */
    private static boolean isForeign(int type) {
        return switch (type) {
            case 0x0800, 0x86dd, 0x8100, 0x88a8, 0x9100, 0x8847, 0x8848, 0x8864 -> false;
            default -> type >= 0x0600;
        };
    }

    /** Whether the number is that of a header in front of the transport, or says that none follows: RFC 8200, sections 4 and 4.7. */
    private static boolean isExtension(int protocol) {
        return protocol == 0 || protocol == 43 || protocol == 44 || protocol == 51 || protocol == 59 || protocol == 60;
    }

    /** Takes the headers from what the library finds. */
    private void ask() {
        checkPointed();
        int number = (int) ((descriptor - (packets & Memory.USER)) / Batch.DESCRIPTOR);
        if (asked == null) {
            asked = new Columns(MANY,
                Field.NETWORK_OFFSET, Field.TRANSPORT_OFFSET, Field.PAYLOAD_OFFSET, Field.PROTOCOL, Field.VLAN);
        }
        if (number < first || number >= behind) {
            int rows = behind > 0 && number >= behind && number - behind < FEW ? MANY : FEW;
            first = number;
            behind = number + asked.fill(batch, number, rows);
        }
        row = number - first;
        network = asked.getInt(Field.NETWORK_OFFSET, row);
        transport = asked.getInt(Field.TRANSPORT_OFFSET, row);
        int next = asked.getInt(Field.PROTOCOL, row);
        protocol = next == 255 ? UNKNOWN : next;
        version = network < 0 ? 0 : (Memory.byteAt(address + network) & 0xff) >> 4;
    }

    /** Returns 4 or 6, and 0 without a whole IP header. */
    public int ipVersion() {
        return version();
    }

    /** Whether there is a whole IPv4 header. */
    public boolean isIpv4() {
        return version() == 4;
    }

    /** Whether there is a whole IPv6 header. */
    public boolean isIpv6() {
        return version() == 6;
    }

    /** Returns the address of the IPv4 header, of which the fixed part was captured. */
    private long ipv4() {
        if (version() != 4) {
            throw new IllegalStateException("the packet is none of IPv4");
        }
        return address + network;
    }

    private long ipv6() {
        if (version() != 6) {
            throw new IllegalStateException("the packet is none of IPv6");
        }
        return address + network;
    }

    /** Returns the offset of the IP header; -1 for frames without IP, and if the header is cut or contradicts itself. */
    public int networkOffset() {
        return version() == 0 ? -1 : network;
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

    /** Returns the IP protocol number of the transport, behind extension headers; -1 without IP, and if these headers are cut. */
    public int protocol() {
        return version() == 0 ? -1 : protocol;
    }

    /** Returns the offset of the transport header, behind IPv6 extension headers; -1 if no byte of it was captured, and in a fragment other
     * than the first. */
    public int transportOffset() {
        return version() == 0 ? -1 : transport;
    }

    /** Returns the offset behind the last captured byte that belongs to the IP packet: what is behind it is padding. */
    private int behindIp() {
        int length = version() == 4
            ? Memory.shortAt(address + network + 2) & 0xffff
            : Memory.shortAt(address + network + 4) & 0xffff;
        // A length of 0 is that of a jumbogram, or left to the interface.
        return length == 0 ? captured : Math.min(captured, network + length + (version == 4 ? 0 : 40));
    }

    /** Whether so many bytes of a transport header are there. */
    private boolean hasTransport(int bytes) {
        return version() != 0 && transport >= 0 && transport + bytes <= behindIp();
    }

    /** Whether this is TCP, with its ports captured. */
    public boolean isTcp() {
        return protocol() == TCP && hasTransport(4);
    }

    /** Whether this is UDP, with its ports captured. */
    public boolean isUdp() {
        return protocol() == UDP && hasTransport(4);
    }

    /** Whether this is ICMP or ICMPv6, with its type and code captured. */
    public boolean isIcmp() {
        return (protocol() == ICMP || protocol() == ICMP6) && hasTransport(2);
    }

    /** Whether the protocol has ports (TCP, UDP, SCTP, DCCP, UDP-Lite) and they are captured. */
    public boolean hasPorts() {
        int protocol = protocol();
        boolean has = protocol == TCP || protocol == UDP || protocol == 132 || protocol == 33 || protocol == 136;
        return has && hasTransport(4);
    }

    /** Returns the address of the ports. */
    private long ports() {
        if (!hasPorts()) {
            throw new IllegalStateException("the packet has no ports, or they were not captured");
        }
        return address + transport;
    }

    /**
     * Returns the source port.
     *
     * @throws IllegalStateException there is none: {@link #hasPorts} tells
     */
    public int sourcePort() {
        return Memory.shortAt(ports()) & 0xffff;
    }

    /**
     * Returns the destination port.
     *
     * @throws IllegalStateException there is none: {@link #hasPorts} tells
     */
    public int destinationPort() {
        return Memory.shortAt(ports() + 2) & 0xffff;
    }

    /** Returns the address of a header of TCP, of which so many bytes are there. */
    private long tcp(int bytes) {
        if (protocol() != TCP || !hasTransport(bytes)) {
            throw new IllegalStateException("the packet has no header of TCP, or it was not captured up to there");
        }
        return address + transport;
    }

    /**
     * Returns the flags of TCP: FIN is the lowest bit, then SYN, RST, PSH, ACK, URG, ECE, CWR.
     *
     * @throws IllegalStateException the packet has none
     */
    public int tcpFlags() {
        return Memory.byteAt(tcp(14) + 13) & 0xff;
    }

    /**
     * Returns the sequence number of TCP.
     *
     * @throws IllegalStateException the packet has none
     */
    public long tcpSequence() {
        return Integer.toUnsignedLong(Memory.intAt(tcp(8) + 4));
    }

    /**
     * Returns the acknowledgment number of TCP.
     *
     * @throws IllegalStateException the packet has none
     */
    public long tcpAcknowledgment() {
        return Integer.toUnsignedLong(Memory.intAt(tcp(12) + 8));
    }

    /** Returns the offset of the payload of TCP, UDP, UDP-Lite, SCTP (the first chunk) or DCCP; -1 if no byte of one was captured, and for
     * other protocols. Padding behind the IP packet is no payload. */
    public int payloadOffset() {
        if (version() == 0 || transport < 0) {
            return -1;
        }
        if (row < 0 && protocol == UDP && hasTransport(9)) {
            int claimed = Memory.shortAt(address + transport + 4) & 0xffff;
            return claimed == 0 || claimed > 8 ? transport + 8 : -1;
        }
        if (row < 0 && protocol == TCP && hasTransport(20)) {
            int header = (Memory.byteAt(address + transport + 12) & 0xff) >> 4 << 2;
            return header >= 20 && transport + header < behindIp() ? transport + header : -1;
        }
        ask();
        return asked.getInt(Field.PAYLOAD_OFFSET, row);
    }

    private long icmp(int bytes) {
        if (!isIcmp()) {
            throw new IllegalStateException("the packet is none of ICMP, or its type was not captured");
        }
        return address + transport + bytes;
    }

    /**
     * Returns the type of an ICMP message.
     *
     * @throws IllegalStateException there is none: {@link #isIcmp} tells
     */
    public int icmpType() {
        return Memory.byteAt(icmp(0)) & 0xff;
    }

    /**
     * Returns the code of an ICMP message.
     *
     * @throws IllegalStateException there is none: {@link #isIcmp} tells
     */
    public int icmpCode() {
        return Memory.byteAt(icmp(1)) & 0xff;
    }
}
