import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import weir.Batch;
import weir.Packet;
import weir.Source;
import weir.WeirException;

/**
 * Shows the ten names that DNS clients asked for most often: DnsNames SOURCE
 *
 * <p>Reads packets where they lie, on every link type: the library tells where the payload begins. Letters are shown as small ones, bytes that are no letters, digits, - or _ as \DDD.
 */
public final class DnsNames {
    /** Returns the name of the first question; {@code null} if there is none or it is cut. Source: RFC 1035, section 4. */
    private static String nameOf(Packet packet, StringBuilder name) {
        int captured = packet.captured();
        int at = packet.payloadOffset();
        if (at < 0 || captured < at + 13 || packet.byteAt(at + 2) >> 7 == 1 || packet.shortAt(at + 4) == 0) {
            return null;
        }
        name.setLength(0);
        for (at += 12; at < captured && packet.byteAt(at) > 0;) {
            int label = packet.byteAt(at++);
            if (label > 63 || captured < at + label || name.length() > 4 * 255) {
                return null;
            }
            if (!name.isEmpty()) {
                name.append('.');
            }
            for (int end = at + label; at < end; at++) {
                int letter = packet.byteAt(at);
                boolean isPlain = letter >= 'a' && letter <= 'z' || letter >= '0' && letter <= '9' || letter == '-' || letter == '_';
                if (letter >= 'A' && letter <= 'Z') {
                    name.append((char) (letter + 32));
                } else if (isPlain) {
                    name.append((char) letter);
                } else {
                    name.append(String.format("\\%03d", letter));
                }
                if (name.length() > 4 * 255) {
                    return null;
                }
            }
        }
        return at < captured && !name.isEmpty() ? name.toString() : null;
    }

    public static void main(String[] arguments) {
        if (arguments.length != 1) {
            System.err.println("DnsNames SOURCE");
            System.exit(2);
        }
        Map<String, Long> names = new HashMap<>();
        StringBuilder room = new StringBuilder();
        try (Source source = Source.open(arguments[0]); Batch batch = new Batch()) {
            Packet packet = batch.packet();
            while (source.next(batch)) {
                for (int i = 0; i < batch.size(); i++) {
                    packet.at(i);
                    if (packet.isUdp() && packet.destinationPort() == 53) {
                        String name = nameOf(packet, room);
                        if (name != null) {
                            names.merge(name, 1L, Long::sum);
                        }
                    }
                }
                batch.release();
            }
        } catch (WeirException e) {
            System.err.println("weir: " + e.getMessage());
            System.exit(e.status() == weir.ffi.Native.WEIR_REFUSED ? 2 : 1);
        }
        Comparator<Map.Entry<String, Long>> byTimes = Comparator.comparingLong(entry -> -entry.getValue());
        names.entrySet().stream()
            .sorted(byTimes.thenComparing(Map.Entry::getKey))
            .limit(10)
            .forEach(entry -> System.out.println(entry.getKey() + " " + entry.getValue()));
        System.out.println(names.size() + " names");
    }
}
