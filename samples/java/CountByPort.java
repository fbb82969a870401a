import java.util.Comparator;
import java.util.stream.IntStream;
import weir.Batch;
import weir.Columns;
import weir.Counts;
import weir.Field;
import weir.Options;
import weir.Source;
import weir.WeirException;

/** Counts packets by destination port, of TCP and UDP together: CountByPort SOURCE [FILTER] */
public final class CountByPort {
    private static final int ROOM = 4096;

    public static void main(String[] arguments) {
        if (arguments.length < 1) {
            System.err.println("CountByPort SOURCE [FILTER]");
            System.exit(2);
        }
        Options options = Options.DEFAULT.withFilter(arguments.length > 1 ? arguments[1] : "");
        long[] packets = new long[65536];
        Counts counts;
        int code = 0;
        try (Source source = Source.open(options, arguments[0]); Batch batch = new Batch()) {
            Columns columns = new Columns(ROOM, Field.DESTINATION_PORT);
            while (true) {
                try {
                    if (!source.next(batch)) {
                        break;
                    }
                } catch (WeirException e) {
                    // What was good before was counted, and the end comes next.
                    System.err.println("weir: " + e.getMessage());
                    code = 1;
                    continue;
                }
                for (int rows = columns.beginPassed(batch); rows > 0; rows = columns.next(batch)) {
                    for (int row = 0; row < rows; row++) {
                        packets[columns.getInt(Field.DESTINATION_PORT, row)]++;
                    }
                }
                batch.release();
            }
            counts = source.end();
        } catch (WeirException e) {
            System.err.println("weir: " + e.getMessage());
            System.exit(e.status() == weir.ffi.Native.WEIR_REFUSED ? 2 : 1);
            return;
        }
        // Port 0 stands for packets without a port.
        IntStream.range(1, 65536)
            .filter(port -> packets[port] > 0)
            .boxed()
            .sorted(Comparator.comparingLong((Integer port) -> -packets[port]).thenComparing(port -> port))
            .limit(10)
            .forEach(port -> System.out.println(port + " " + packets[port]));
        System.out.println(counts.received() + " received, " + counts.passed() + " matched");
        System.exit(code);
    }
}
