import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import weir.Batch;
import weir.Columns;
import weir.Counts;
import weir.Field;
import weir.Sink;
import weir.Source;
import weir.Verdicts;
import weir.WeirException;

/**
 * Passes packets by rules, a line each: Firewall RULES SOURCE SINK
 *
 * <p>A line has an IPv4 source address and a protocol number; a packet that one of them names is dropped, all others pass.
 */
public final class Firewall {
    private static final int ROOM = 4096;

    /** Rules as numbers in ascending order: protocol above the address. */
    private static long[] read(Path path) throws IOException {
        return Files.readAllLines(path).stream().filter(line -> !line.isBlank()).mapToLong(line -> {
            String[] words = line.trim().split("[ .]+");
            long address = 0;
            for (int i = 0; i < 4; i++) {
                address = address << 8 | Long.parseLong(words[i]);
            }
            return Long.parseLong(words[4]) << 32 | address;
        }).sorted().toArray();
    }

    public static void main(String[] arguments) throws IOException {
        if (arguments.length != 3) {
            System.err.println("Firewall RULES SOURCE SINK");
            System.exit(2);
        }
        long[] rules = read(Path.of(arguments[0]));
        long denied = 0;
        try (Source source = Source.open(arguments[1]);
            Sink sink = Sink.open(arguments[2]);
            Batch batch = new Batch()) {
            Columns columns = new Columns(ROOM, Field.IP_VERSION, Field.IPV4_SOURCE, Field.PROTOCOL);
            Verdicts verdicts = new Verdicts();
            while (source.next(batch)) {
                verdicts.begin(batch);
                int number = 0;
                for (int rows = columns.begin(batch); rows > 0; rows = columns.next(batch)) {
                    for (int row = 0; row < rows; row++, number++) {
                        long address = Integer.toUnsignedLong(columns.getInt(Field.IPV4_SOURCE, row));
                        long key = (long) columns.getInt(Field.PROTOCOL, row) << 32 | address;
                        if (columns.getInt(Field.IP_VERSION, row) == 4 && Arrays.binarySearch(rules, key) >= 0) {
                            denied++;
                        } else {
                            verdicts.pass(number);
                        }
                    }
                }
                sink.send(batch, verdicts);
                batch.release();
            }
            Sink.Counts sent = sink.end();
            Counts counts = source.end();
            System.out.println(counts.received() + " received, " + sent.written() + " passed, " + denied + " denied");
        } catch (WeirException e) {
            System.err.println("weir: " + e.getMessage());
            System.exit(e.status() == weir.ffi.Native.WEIR_REFUSED ? 2 : 1);
        }
    }
}
