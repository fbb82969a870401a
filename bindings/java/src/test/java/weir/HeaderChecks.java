package weir;

import java.util.function.IntSupplier;

/**
 * Checks that packets have the headers that their columns have: HeaderChecks FILE... Each packet is looked at in order, and again from the
 * last to the first. Prints how many were compared, and ends with an exception at the first that differs.
 */
public final class HeaderChecks {
    private static long compared;
    private static long ports;
    private static int unread;

    public static void main(String[] files) {
        for (String file : files) {
            try (Source source = Source.open(file); Batch batch = new Batch()) {
                while (next(source, batch)) {
                    compare(file, batch);
                    batch.release();
                }
            } catch (WeirException e) {
                unread++;
            }
        }
        System.out.println("ok " + compared + " compared, " + ports + " with ports, " + unread + " files unread");
    }

    /** What is damaged is told, and the end comes behind it. */
    private static boolean next(Source source, Batch batch) {
        try {
            return source.next(batch);
        } catch (WeirException e) {
            return false;
        }
    }

    private static void compare(String file, Batch batch) {
        Columns columns = new Columns(batch.size(), Field.values());
        int rows = columns.begin(batch);
        if (rows != batch.size()) {
            throw new AssertionError(rows);
        }
        for (int i = 0; i < 2 * rows; i++) {
            int row = i < rows ? i : 2 * rows - 1 - i;
            try {
                compare(columns, batch.packet().at(row), row);
            } catch (AssertionError | RuntimeException e) {
                throw new AssertionError(file + ", packet " + row + " of a batch: " + e.getMessage(), e);
            }
        }
        compared += rows;
    }

    private static void compare(Columns columns, Packet packet, int row) {
        IntSupplier payload = packet::payloadOffset;
        // Asked for first or last, a field is the same.
        if (row % 2 == 0) {
            same("payload", columns.getInt(Field.PAYLOAD_OFFSET, row), payload.getAsInt());
        }
        int version = columns.getInt(Field.IP_VERSION, row);
        same("version", version, packet.ipVersion());
        same("network", columns.getInt(Field.NETWORK_OFFSET, row), packet.networkOffset());
        same("transport", columns.getInt(Field.TRANSPORT_OFFSET, row), packet.transportOffset());
        same("payload", columns.getInt(Field.PAYLOAD_OFFSET, row), payload.getAsInt());
        int protocol = columns.getInt(Field.PROTOCOL, row);
        same("protocol", protocol == 255 ? -1 : protocol, packet.protocol());
        int vlan = columns.getInt(Field.VLAN, row);
        same("vlan", vlan == 65535 ? -1 : vlan, packet.vlan());
        same("source port", columns.getInt(Field.SOURCE_PORT, row), orZero(packet::sourcePort));
        same("destination port", columns.getInt(Field.DESTINATION_PORT, row), orZero(packet::destinationPort));
        same("flags", columns.getInt(Field.TCP_FLAGS, row), orZero(packet::tcpFlags));
        same("source", columns.getInt(Field.IPV4_SOURCE, row), version == 4 ? packet.ipv4Source() : 0);
        same("wire length", (int) columns.getLong(Field.WIRE_LENGTH, row), (int) packet.wireLength());
        if (packet.hasPorts()) {
            ports++;
            same("port", packet.shortAt(packet.transportOffset()), packet.sourcePort());
        }
    }

    /** A number, and 0 if the packet has none. */
    private static int orZero(IntSupplier number) {
        try {
            return number.getAsInt();
        } catch (IllegalStateException e) {
            return 0;
        }
    }

    private static void same(String what, int expected, int found) {
        if (expected != found) {
            throw new AssertionError(what + " " + found + ", in the column " + expected);
        }
    }
}
