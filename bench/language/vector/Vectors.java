import java.lang.foreign.ValueLayout;
import weir.Batch;
import weir.Columns;
import weir.Field;
import weir.vector.Marks;

/** The firewall of {@link Language} over columns, by vectors as far as it is a comparison of fields. */
public final class Vectors {
    private static final Columns ROOM =
        new Columns(4096, Field.IP_VERSION, Field.PROTOCOL, Field.IPV4_SOURCE, Field.WIRE_LENGTH);
    private static final Marks MARKS = new Marks(4096);

    private Vectors() {}

    private static long firewall(Batch batch) {
        long sum = 0;
        var sources = ROOM.segment(Field.IPV4_SOURCE);
        var lengths = ROOM.segment(Field.WIRE_LENGTH);
        for (int rows = ROOM.begin(batch); rows > 0; rows = ROOM.next(batch)) {
            MARKS.begin(rows).andEqual(ROOM, Field.IP_VERSION, 4).andEqual(ROOM, Field.PROTOCOL, 17);
            for (int first = 0; first < rows; first += 64) {
                for (long left = MARKS.word(first >> 6); left != 0; left &= left - 1) {
                    int row = first + Long.numberOfTrailingZeros(left);
                    if (Language.has(sources.getAtIndex(ValueLayout.JAVA_INT, row))) {
                        sum += lengths.getAtIndex(ValueLayout.JAVA_INT, row) + (1L << 32);
                    }
                }
            }
        }
        return sum;
    }

    public static void main(String[] arguments) {
        Language.judge(arguments[1], Integer.parseInt(arguments[2]), Long.parseLong(arguments[3]), Vectors::firewall);
    }
}
