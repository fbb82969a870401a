package weir;

import weir.ffi.Native;

/** A field of packets, as a column: see {@link Columns}. */
public enum Field {
    /** Time of capture, ns since 1970 (8 bytes); {@link Long#MIN_VALUE} without a timestamp. */
    TIME(Native.WEIR_TIME, 8),
    /** Length on the wire, bytes (4 bytes). */
    WIRE_LENGTH(Native.WEIR_WIRE_LEN, 4),
    /** Captured length, bytes (4 bytes). */
    CAPTURED(Native.WEIR_CAPTURED, 4),
    /** Index of the interface in its source (4 bytes). */
    INTERFACE(Native.WEIR_INTERFACE, 4),
    /** 4 or 6, and 0 for frames without IP (1 byte). */
    IP_VERSION(Native.WEIR_IP_VERSION, 1),
    /** Source address of IPv4 as a number; else 0 (4 bytes). */
    IPV4_SOURCE(Native.WEIR_SRC4, 4),
    /** Destination address of IPv4 as a number; else 0 (4 bytes). */
    IPV4_DESTINATION(Native.WEIR_DST4, 4),
    /** Source address in network order, of IPv4 as {@code ::ffff:a.b.c.d} (16 bytes). */
    SOURCE(Native.WEIR_SRC, 16),
    /** Destination address in network order (16 bytes). */
    DESTINATION(Native.WEIR_DST, 16),
    /** IP protocol number of the transport; 255 if it is unknown (1 byte). */
    PROTOCOL(Native.WEIR_PROTOCOL, 1),
    /** Source port; 0 without one (2 bytes). */
    SOURCE_PORT(Native.WEIR_SRC_PORT, 2),
    /** Destination port; 0 without one (2 bytes). */
    DESTINATION_PORT(Native.WEIR_DST_PORT, 2),
    /** TCP flags; 0 without TCP (1 byte). */
    TCP_FLAGS(Native.WEIR_TCP_FLAGS, 1),
    /** Identifier of the outermost VLAN tag; 65535 without one (2 bytes). */
    VLAN(Native.WEIR_VLAN, 2),
    /** Offset of the IP header in the frame, bytes; -1 for frames without IP (4 bytes). */
    NETWORK_OFFSET(Native.WEIR_NETWORK_OFFSET, 4),
    /** Offset of the transport header in the frame, after IPv6 extension headers, bytes; -1 if no byte of it was captured, and in
     * fragments other than the first (4 bytes). */
    TRANSPORT_OFFSET(Native.WEIR_TRANSPORT_OFFSET, 4),
    /** Offset of the payload of TCP, UDP, UDP-Lite, SCTP (the first chunk) or DCCP in the frame, bytes; -1 if no byte of one was captured
     * (4 bytes). Padding after the IP packet is not payload. */
    PAYLOAD_OFFSET(Native.WEIR_PAYLOAD_OFFSET, 4);

    final int number;
    final int bytes;

    /** Whether numbers may be negative. */
    boolean isOffset() {
        return this == NETWORK_OFFSET || this == TRANSPORT_OFFSET || this == PAYLOAD_OFFSET;
    }

    Field(int number, int bytes) {
        this.number = number;
        this.bytes = bytes;
    }
}
