package weir.vector;

import weir.Batch;
import weir.Columns;
import weir.Field;
import weir.Options;
import weir.Source;

/** Checks of {@link Marks} against the same rules row by row, over a capture file: MarksChecks FILE. */
public final class MarksChecks {
    private MarksChecks() {}

    /** The scalar twin: whether rule {@code rule} keeps a row. */
    private static boolean keeps(int rule, Columns columns, int row) {
        int port = columns.getInt(Field.DESTINATION_PORT, row);
        return switch (rule) {
            case 0 -> columns.getInt(Field.PROTOCOL, row) == 17;
            case 1 -> columns.getInt(Field.PROTOCOL, row) == 255;
            case 2 -> port >= 1001 && port <= 1005;
            case 3 -> port >= 5 && port <= 4;
            case 4 -> port >= 0 && port <= 65_535;
            case 5 -> (columns.getInt(Field.IPV4_SOURCE, row) & ~3) == 0x0a000004;
            case 6 -> columns.getInt(Field.IPV4_SOURCE, row) == 0x0a000003;
            default -> columns.getInt(Field.IP_VERSION, row) == 4
                && columns.getInt(Field.PROTOCOL, row) == 6
                && columns.getInt(Field.SOURCE_PORT, row) >= 40_000
                && columns.getInt(Field.IPV4_DESTINATION, row) >>> 24 == 10;
        };
    }

    private static Marks marks(int rule, Marks marks, Columns columns) {
        return switch (rule) {
            case 0 -> marks.andEqual(columns, Field.PROTOCOL, 17);
            case 1 -> marks.andEqual(columns, Field.PROTOCOL, 255);
            case 2 -> marks.andBetween(columns, Field.DESTINATION_PORT, 1001, 1005);
            case 3 -> marks.andBetween(columns, Field.DESTINATION_PORT, 5, 4);
            case 4 -> marks.andBetween(columns, Field.DESTINATION_PORT, 0, 65_535);
            case 5 -> marks.andNetwork(columns, Field.IPV4_SOURCE, 0x0a000006, 30);
            case 6 -> marks.andNetwork(columns, Field.IPV4_SOURCE, 0x0a000003, 32);
            default -> marks.andEqual(columns, Field.IP_VERSION, 4)
                .andEqual(columns, Field.PROTOCOL, 6)
                .andBetween(columns, Field.SOURCE_PORT, 40_000, 65_535)
                .andNetwork(columns, Field.IPV4_DESTINATION, 0x0a000000, 8)
                .andNetwork(columns, Field.IPV4_DESTINATION, 0, 0);
        };
    }

    public static void main(String[] arguments) {
        long compared = 0;
        long marked = 0;
        // Capacities with and without a rest behind whole vectors.
        for (int capacity : new int[] {1, 63, 64, 65, 1000, 4096}) {
            Columns columns = new Columns(capacity, Field.values());
            Marks marks = new Marks(capacity);
            try (Source source = Source.open(Options.DEFAULT.withLimit(20_000), arguments[0]); Batch batch = new Batch()) {
                while (source.next(batch)) {
                    for (int rows = columns.begin(batch); rows > 0; rows = columns.next(batch)) {
                        for (int rule = 0; rule < 8; rule++) {
                            marks(rule, marks.begin(rows), columns);
                            int count = 0;
                            int next = marks.next(0);
                            for (int row = 0; row < rows; row++, compared++) {
                                boolean keeps = keeps(rule, columns, row);
                                boolean isMarked = (marks.word(row / 64) >>> row & 1) == 1;
                                if (keeps != isMarked || keeps != (next == row)) {
                                    throw new AssertionError("rule " + rule + ", row " + row + " of " + rows);
                                }
                                if (keeps) {
                                    count++;
                                    next = marks.next(row + 1);
                                }
                            }
                            if (count != marks.count() || next != -1) {
                                throw new AssertionError("rule " + rule + ": " + count + " and " + marks.count());
                            }
                            marked += count;
                        }
                    }
                    batch.release();
                }
            }
        }
        try {
            new Marks(64).begin(1).andEqual(new Columns(64, Field.TIME), Field.TIME, 1);
            throw new AssertionError("a field of eight bytes");
        } catch (IllegalArgumentException e) {
            System.out.println("ok " + compared + " compared, " + marked + " marked");
        }
    }
}
