import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import weir.Batch;
import weir.Columns;
import weir.Field;
import weir.Options;
import weir.Source;
import weir.WeirException;

/** Shows the ten IPv4 sources with the most bytes: HeavyHitters SOURCE [FILTER] */
public final class HeavyHitters {
    private static final int ROOM = 4096;

    public static void main(String[] arguments) {
        if (arguments.length < 1) {
            System.err.println("HeavyHitters SOURCE [FILTER]");
            System.exit(2);
        }
        Options options = Options.DEFAULT.withFilter(arguments.length > 1 ? arguments[1] : "");
        // Packets and bytes by address.
        Map<Integer, long[]> talkers = new HashMap<>();
        try (Source source = Source.open(options, arguments[0]); Batch batch = new Batch()) {
            Columns columns = new Columns(ROOM, Field.IP_VERSION, Field.IPV4_SOURCE, Field.WIRE_LENGTH);
            while (source.next(batch)) {
                for (int rows = columns.beginPassed(batch); rows > 0; rows = columns.next(batch)) {
                    for (int row = 0; row < rows; row++) {
                        if (columns.getInt(Field.IP_VERSION, row) == 4) {
                            int address = columns.getInt(Field.IPV4_SOURCE, row);
                            long[] sums = talkers.computeIfAbsent(address, none -> new long[2]);
                            sums[0]++;
                            sums[1] += Integer.toUnsignedLong(columns.getInt(Field.WIRE_LENGTH, row));
                        }
                    }
                }
                batch.release();
            }
        } catch (WeirException e) {
            System.err.println("weir: " + e.getMessage());
            System.exit(e.status() == weir.ffi.Native.WEIR_REFUSED ? 2 : 1);
        }
        Comparator<Map.Entry<Integer, long[]>> byBytes = Comparator.comparingLong(entry -> -entry.getValue()[1]);
        talkers.entrySet().stream()
            .sorted(byBytes.thenComparing(entry -> Integer.toUnsignedLong(entry.getKey())))
            .limit(10)
            .forEach(entry -> {
                int at = entry.getKey();
                long[] sums = entry.getValue();
                System.out.printf("%d.%d.%d.%d %d packets %d bytes%n",
                    at >>> 24, at >>> 16 & 255, at >>> 8 & 255, at & 255, sums[0], sums[1]);
            });
        System.out.println(talkers.size() + " sources");
    }
}
