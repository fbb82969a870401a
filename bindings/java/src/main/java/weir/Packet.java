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
 * <p>Headers are read from the outermost IP packet, as {@link Columns} has them: the same walk of the library finds both, on every link type
 * that it knows. A method that needs a header which is not there throws {@link IllegalStateException}; {@link #ipVersion},
 * {@link #hasPorts}, {@link #isTcp} and {@link #isIcmp} ask before. Of a fragment other than the first there is no transport header.
 * Most packets of Ethernet cost a few loads; for others the library is asked about some packets at once, at some ten nanoseconds each.
 */
public final class Packet {
    private static final int ETHERNET = 1;
    private static final int LINUX_SLL = 113;
    private static final int LINUX_SLL2 = 276;
    /** Bytes of a header of Ethernet. */
    private static final int LINK = 14;
    /** Tags in front of IP that are read without the library. */
    private static final int MOST_TAGS = 2;
    /** EtherType, version and header length of IPv4 without options, bytes 12 to 14: which bits to look at, and what they are. */
    private static final int IPV4_BITS = inOrder(0xffff_ff00);

    private static final int IPV4 = inOrder(0x0800_4500);
    private static final int TCP = 6;
    private static final int UDP = 17;
    private static final int ICMP = 1;
    private static final int ICMP6 = 58;
    private static final int DCCP = 33;
    private static final int SCTP = 132;
    private static final int UDP_LITE = 136;
    private static final int AUTHENTICATION = 51;
    /** No next header: nothing after it is read (RFC 8200, section 4.7). */
    private static final int NO_NEXT = 59;

    /** The one bit in which these two differ. */
    private static final int NO_NEXT_ONLY = NO_NEXT ^ AUTHENTICATION;
    /** Protocols with ports that have numbers below 64, a bit each. */
    private static final long PORTS = 1L << TCP | 1L << UDP | 1L << DCCP;

    /** Bits of {@link #headers}: the protocol, 255 if it is unknown. */
    private static final int PROTOCOL = 0xff;
    /** Place of the IP version (4, 6, or 0 without IP) in {@link #headers}, three bits. */
    private static final int VERSION = 8;
    /** Bit of {@link #headers}: four bytes of the transport header are there, as ports need them. */
    private static final int FOUR = 1 << 11;
    /** Place of the distance from the IP header to the transport header in {@link #headers}, 16 bits; 0 for no transport header. */
    private static final int TRANSPORT = 16;
    /** Place of the offset of the IP header in {@link #headers}; -1 for none. */
    private static final int NETWORK = 32;

    private static final long UNKNOWN = 0;
    private static final long NO_IP = -1L << NETWORK | PROTOCOL;
    /** IPv4 without options after Ethernet without a tag: a later fragment, and any other packet. */
    private static final long LATER_IPV4 = (long) LINK << NETWORK | 4 << VERSION;

    private static final long PLAIN_IPV4 = LATER_IPV4 | 20 << TRANSPORT | FOUR;
    /** Packets about which the library is asked at once: at first, and while they are read one after the other. */
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
    /** Known facts about the headers, in one word that stays in a register: see {@link #PROTOCOL} and the next constants. */
    private long headers;
    /** Row of {@link #asked} that has the packet. */
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
        headers = UNKNOWN;
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

    /** Returns the time of capture, ns since 1970; {@link Long#MIN_VALUE} if there is no timestamp. */
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

    /** Returns the EtherType after VLAN tags, and for link types without EtherTypes IP's; 0 if the captured bytes tell none. */
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

    /** Returns what is known of the headers. All bytes of a fixed IP header that it names were captured. */
    private long headers() {
        if (Thread.currentThread() != holder) {
            throw batch.refused();
        }
        if (headers == UNKNOWN) {
            find();
        }
        return headers;
    }

    /** Finds the headers: in most frames of Ethernet here, where the walk of the library finds the same; else the library is asked. */
    private void find() {
        if (linkType == ETHERNET && captured >= LINK + 24 && (Memory.nativeInt(address + 12) & IPV4_BITS) == IPV4) {
            // Total length, identification, flags and fragment offset, time to live, protocol.
            long rest = Memory.longAt(address + LINK + 2);
            // Frames with the greatest lengths, which are negative here, are looked at below. One comparison rules out both protocols.
            if (rest >= 24L << 48 && (rest & ~NO_NEXT_ONLY & PROTOCOL) != AUTHENTICATION) {
                headers = ((rest & 0x1fff_0000) == 0 ? PLAIN_IPV4 : LATER_IPV4) | rest & PROTOCOL;
                return;
            }
        }
        headers = linkType == ETHERNET && captured >= LINK ? findBehindTags() : UNKNOWN;
        if (headers == UNKNOWN) {
            ask();
        }
    }

    /** Returns the headers of a frame of Ethernet; UNKNOWN if the library must be asked. */
    private long findBehindTags() {
        int at = LINK;
        int type = Memory.shortAt(address + 12) & 0xffff;
        for (int tags = 0; isTag(type); tags++) {
            if (tags == MOST_TAGS || captured < at + 4) {
                return UNKNOWN;
            }
            type = Memory.shortAt(address + at + 2) & 0xffff;
            at += 4;
        }
        return switch (type) {
            case 0x0800 -> findIpv4(at);
            case 0x86dd -> findIpv6(at);
            // Labels and sessions, behind which IP may follow.
            case 0x8847, 0x8848, 0x8864, 0x8903 -> UNKNOWN;
            // Lesser numbers are lengths (IEEE 802.3, clause 3.2.6).
            default -> type >= 0x0600 ? NO_IP : UNKNOWN;
        };
    }

    private long findIpv4(int at) {
        if (captured < at + 20) {
            return UNKNOWN;
        }
        int first = Memory.byteAt(address + at) & 0xff;
        int header = (first & 15) * 4;
        int total = Memory.shortAt(address + at + 2) & 0xffff;
        int next = Memory.byteAt(address + at + 9) & 0xff;
        boolean isWhole = first >> 4 == 4 && header >= 20 && captured >= at + header && total >= header;
        if (!isWhole || next == AUTHENTICATION || next == NO_NEXT) {
            return UNKNOWN;
        }
        boolean isLater = (Memory.shortAt(address + at + 6) & 0x1fff) != 0;
        return found(4, at, next, header, isLater ? 0 : Math.min(total, captured - at) - header);
    }

    private long findIpv6(int at) {
        if (captured < at + 40 || Memory.byteAt(address + at) >> 4 != 6) {
            return UNKNOWN;
        }
        int length = Memory.shortAt(address + at + 4) & 0xffff;
        int next = Memory.byteAt(address + at + 6) & 0xff;
        boolean isPlain = length > 0 && !isExtension(next);
        return isPlain ? found(6, at, next, 40, Math.min(length, captured - at - 40)) : UNKNOWN;
    }

    /** Packs what was found: so many bytes of the transport are there. */
    private static long found(int version, int at, int protocol, int header, int bytes) {
        long transport = bytes > 0 ? (long) header << TRANSPORT : 0;
        return (long) at << NETWORK | transport | (bytes >= 4 ? FOUR : 0) | version << VERSION | protocol;
    }

    /** Whether the number belongs to a header in front of the transport, or says that none follows: RFC 8200, sections 4 and 4.7. */
    private static boolean isExtension(int protocol) {
        return switch (protocol) {
            case 0, 43, 44, AUTHENTICATION, NO_NEXT, 60 -> true;
            default -> false;
        };
    }

    /** Takes the headers from what the library finds. */
    private void ask() {
        checkPointed();
        int number = (int) ((descriptor - (packets & Memory.USER)) / Batch.DESCRIPTOR);
        if (asked == null) {
            asked = new Columns(MANY, Field.NETWORK_OFFSET, Field.TRANSPORT_OFFSET, Field.PROTOCOL, Field.VLAN);
        }
        if (number < first || number >= behind) {
            int rows = behind > 0 && number >= behind && number - behind < FEW ? MANY : FEW;
            first = number;
            behind = number + asked.fill(batch, number, rows);
        }
        row = number - first;
        int network = asked.getInt(Field.NETWORK_OFFSET, row);
        if (network < 0) {
            headers = NO_IP;
            return;
        }
        int version = (Memory.byteAt(address + network) & 0xff) >> 4;
        int transport = asked.getInt(Field.TRANSPORT_OFFSET, row);
        int bytes = transport < 0 ? 0 : behindIp(version, network) - transport;
        headers = found(version, network, asked.getInt(Field.PROTOCOL, row), transport - network, bytes);
    }

    private static int version(long headers) {
        return (int) headers >>> VERSION & 7;
    }

    private static int network(long headers) {
        return (int) (headers >> NETWORK);
    }

    private static int protocol(long headers) {
        return (int) headers & PROTOCOL;
    }

    /** Returns the offset of the transport header; -1 for none. */
    private static int transport(long headers) {
        int bytes = (int) headers >>> TRANSPORT;
        return bytes == 0 ? -1 : network(headers) + bytes;
    }

    /** Returns 4 or 6, and 0 without a whole IP header. */
    public int ipVersion() {
        return version(headers());
    }

    /** Whether there is a whole IPv4 header. */
    public boolean isIpv4() {
        return version(headers()) == 4;
    }

    /** Whether there is a whole IPv6 header. */
    public boolean isIpv6() {
        return version(headers()) == 6;
    }

    /** Returns the address of the IPv4 header, of which the fixed part was captured. */
    private long ipv4() {
        long headers = headers();
        if (version(headers) != 4) {
            throw new IllegalStateException("the packet is none of IPv4");
        }
        return address + network(headers);
    }

    private long ipv6() {
        long headers = headers();
        if (version(headers) != 6) {
            throw new IllegalStateException("the packet is none of IPv6");
        }
        return address + network(headers);
    }

    /** Returns the offset of the IP header; -1 for frames without IP, and if the header is cut or contradicts itself. */
    public int networkOffset() {
        return network(headers());
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

    /** Returns the IP protocol number of the transport, after extension headers; -1 without IP, and if these headers are cut. */
    public int protocol() {
        int protocol = protocol(headers());
        return protocol == 255 ? -1 : protocol;
    }

    /** Returns the offset of the transport header, after IPv6 extension headers; -1 if no byte of it was captured, and in a fragment other
     * than the first. */
    public int transportOffset() {
        return transport(headers());
    }

    /** Returns the offset after the last captured byte of the IP packet: later bytes are padding. */
    private int behindIp(int version, int network) {
        int length = Memory.shortAt(address + network + (version == 4 ? 2 : 4)) & 0xffff;
        // A length of 0 means a jumbogram, or that the interface fills it in.
        return length == 0 ? captured : Math.min(captured, network + length + (version == 4 ? 0 : 40));
    }

    /** Returns the bytes of the IP packet from the transport header on; 0 without one. */
    private int transportBytes(long headers) {
        int transport = transport(headers);
        return transport < 0 ? 0 : behindIp(version(headers), network(headers)) - transport;
    }

    /** Whether this is of a protocol, with four bytes of its header. */
    private static boolean is(int protocol, long headers) {
        return ((int) headers & (PROTOCOL | FOUR)) == (protocol | FOUR);
    }

    /** Whether this is TCP, with its ports captured. */
    public boolean isTcp() {
        return is(TCP, headers());
    }

    /** Whether this is UDP, with its ports captured. */
    public boolean isUdp() {
        return is(UDP, headers());
    }

    /** Whether this is ICMP or ICMPv6, with its type and code captured. */
    public boolean isIcmp() {
        long headers = headers();
        int protocol = protocol(headers);
        return (protocol == ICMP || protocol == ICMP6) && transportBytes(headers) >= 2;
    }

    /** Whether the protocol has ports (TCP, UDP, SCTP, DCCP, UDP-Lite) and they are captured. */
    public boolean hasPorts() {
        return hasPorts(headers());
    }

    private static boolean hasPorts(long headers) {
        int protocol = protocol(headers);
        boolean has = protocol < 64 ? (PORTS >>> protocol & 1) != 0 : protocol == SCTP || protocol == UDP_LITE;
        return has && ((int) headers & FOUR) != 0;
    }

    /** Returns the address of the ports. */
    private long ports() {
        long headers = headers();
        if (!hasPorts(headers)) {
            throw new IllegalStateException("the packet has no ports, or they were not captured");
        }
        return address + transport(headers);
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
        long headers = headers();
        if (protocol(headers) != TCP || transportBytes(headers) < bytes) {
            throw new IllegalStateException("the packet has no header of TCP, or it was not captured up to there");
        }
        return address + transport(headers);
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
     * other protocols. Padding after the IP packet is not payload. */
    public int payloadOffset() {
        long headers = headers();
        int transport = transport(headers);
        int bytes = transportBytes(headers);
        int header = bytes == 0 ? 0 : transportHeader(protocol(headers), address + transport, bytes);
        return header > 0 && bytes > header ? transport + header : -1;
    }

    /** Returns the length of the header of TCP, UDP, UDP-Lite, SCTP or DCCP at an address; 0 for other protocols, and if the header is cut,
     * says that it is shorter than it can be, or that there is nothing after it. So many bytes of it and after it are there. */
    private static int transportHeader(int protocol, long at, int bytes) {
        return switch (protocol) {
            // RFC 9293, section 3.1, and RFC 4340, section 5.1: the data offset counts words.
            case TCP -> bytes > 20 ? atLeast(20, (Memory.byteAt(at + 12) & 0xff) >> 4) : 0;
            case DCCP -> bytes > 12 ? atLeast(12, Memory.byteAt(at + 4) & 0xff) : 0;
            case UDP -> bytes > 8 && hasPayload(at) ? 8 : 0;
            case UDP_LITE -> 8;
            // RFC 9260, section 3.
            case SCTP -> 12;
            default -> 0;
        };
    }

    private static int atLeast(int least, int words) {
        return words * 4 >= least ? words * 4 : 0;
    }

    /** Whether the length of UDP has room for more than its header. A length of 0 means a jumbogram, or that the interface fills it in. */
    private static boolean hasPayload(long at) {
        int claimed = Memory.shortAt(at + 4) & 0xffff;
        return claimed == 0 || claimed > 8;
    }

    private long icmp(int bytes) {
        if (!isIcmp()) {
            throw new IllegalStateException("the packet is none of ICMP, or its type was not captured");
        }
        return address + transport(headers) + bytes;
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
