import org.pcap4j.core.PacketListener;
import org.pcap4j.core.PcapHandle;
import org.pcap4j.core.Pcaps;
import org.pcap4j.core.RawPacketListener;
import org.pcap4j.packet.Packet;
import org.pcap4j.packet.TcpPacket;
import org.pcap4j.packet.UdpPacket;

/** The program of {@link Ports} with pcap4j: {@code packets} asks its packet objects, {@code bytes} looks into the arrays it gives. */
public final class Pcap4jPorts {
    private Pcap4jPorts() {}

    public static void main(String[] arguments) throws Exception {
        Ports.Count count = arguments[0].equals("packets") ? Pcap4jPorts::packets : Pcap4jPorts::bytes;
        Ports.turns(arguments[1], Integer.parseInt(arguments[2]), Long.parseLong(arguments[3]), count);
    }

    private static long packets(String file, long[] ports) throws Exception {
        long[] seen = new long[1];
        try (PcapHandle handle = Pcaps.openOffline(file)) {
            PacketListener listener = packet -> {
                seen[0]++;
                count(packet, ports);
            };
            handle.loop(-1, listener);
        }
        return seen[0];
    }

    private static void count(Packet packet, long[] ports) {
        UdpPacket udp = packet.get(UdpPacket.class);
        if (udp != null) {
            ports[udp.getHeader().getDstPort().valueAsInt()]++;
            return;
        }
        TcpPacket tcp = packet.get(TcpPacket.class);
        if (tcp != null) {
            ports[tcp.getHeader().getDstPort().valueAsInt()]++;
        }
    }

    private static long bytes(String file, long[] ports) throws Exception {
        long[] seen = new long[1];
        try (PcapHandle handle = Pcaps.openOffline(file)) {
            RawPacketListener listener = frame -> {
                seen[0]++;
                if (frame.length < 34 || frame[12] != 8 || frame[13] != 0 || frame[14] >> 4 != 4) {
                    return;
                }
                int at = 14 + (frame[14] & 15) * 4 + 2;
                if ((frame[23] == 17 || frame[23] == 6) && frame.length >= at + 2) {
                    ports[(frame[at] & 0xff) << 8 | frame[at + 1] & 0xff]++;
                }
            };
            handle.loop(-1, listener);
        }
        return seen[0];
    }
}
