package weir.vector;

import java.lang.foreign.MemorySegment;
import java.nio.ByteOrder;
import java.util.Arrays;
import jdk.incubator.vector.ByteVector;
import jdk.incubator.vector.IntVector;
import jdk.incubator.vector.ShortVector;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorSpecies;
import weir.Columns;
import weir.Field;

/**
 * Marks on rows of {@link Columns}, a bit for each row, made by vector instructions: a rule is a sequence of conditions, each of which
 * leaves fewer rows.
 *
 * <pre>{@code
 * Marks marks = new Marks(columns.capacity());
 * for (int rows = columns.begin(batch); rows > 0; rows = columns.next(batch)) {
 *     marks.begin(rows).andEqual(columns, Field.PROTOCOL, 17).andBetween(columns, Field.DESTINATION_PORT, 0, 1023);
 *     for (int row = marks.next(0); row >= 0; row = marks.next(row + 1)) { ... }
 * }
 * }</pre>
 *
 * <p>Start java with {@code --add-modules jdk.incubator.vector}. <b>Cost</b>: with vectors of 64 bytes, a comparison for each 64 rows of a
 * field of one byte; no allocation once C2 has compiled the caller, and slow before that. <b>Threads</b>: one at a time.
 */
public final class Marks {
    private static final VectorSpecies<Byte> BYTES = ByteVector.SPECIES_PREFERRED;
    private static final VectorSpecies<Short> SHORTS = ShortVector.SPECIES_PREFERRED;
    private static final VectorSpecies<Integer> INTS = IntVector.SPECIES_PREFERRED;
    private static final ByteOrder NATIVE = ByteOrder.nativeOrder();

    private final long[] words;
    private int rows;

    /** Makes marks for up to {@code capacity} rows. */
    public Marks(int capacity) {
        words = new long[(capacity + 63) / 64];
    }

    /** Marks the first {@code rows} rows. */
    public Marks begin(int rows) {
        java.util.Objects.checkIndex(rows, 64 * words.length + 1);
        this.rows = rows;
        int whole = rows / 64;
        Arrays.fill(words, 0, whole, -1);
        if (rows % 64 > 0) {
            words[whole] = (1L << rows % 64) - 1;
        }
        return this;
    }

    /** Keeps the marks of rows whose field of one byte has this value. */
    public Marks andEqual(Columns columns, Field field, int value) {
        MemorySegment values = segment(columns, field, 1);
        byte wanted = (byte) value;
        int lanes = BYTES.length();
        for (int row = 0; row < rows; row += lanes) {
            ByteVector found = row + lanes <= rows
                ? ByteVector.fromMemorySegment(BYTES, values, row, NATIVE)
                : ByteVector.fromMemorySegment(BYTES, values, row, NATIVE, BYTES.indexInRange(row, rows));
            and(row, lanes, found.compare(VectorOperators.EQ, wanted).toLong());
        }
        return this;
    }

    /** Keeps the marks of rows whose field of two bytes is from {@code low} to {@code high}, both unsigned and included. */
    public Marks andBetween(Columns columns, Field field, int low, int high) {
        MemorySegment values = segment(columns, field, 2);
        // One comparison: what lies below `low` is a large number behind the subtraction.
        short base = (short) low;
        short span = (short) (high - low);
        int lanes = SHORTS.length();
        for (int row = 0; row < rows; row += lanes) {
            ShortVector found = row + lanes <= rows
                ? ShortVector.fromMemorySegment(SHORTS, values, 2L * row, NATIVE)
                : ShortVector.fromMemorySegment(SHORTS, values, 2L * row, NATIVE, SHORTS.indexInRange(row, rows));
            and(row, lanes, low > high ? 0 : found.sub(base).compare(VectorOperators.ULE, span).toLong());
        }
        return this;
    }

    /** Keeps the marks of rows whose field of four bytes begins with the first {@code prefix} bits of {@code network}. */
    public Marks andNetwork(Columns columns, Field field, int network, int prefix) {
        MemorySegment values = segment(columns, field, 4);
        java.util.Objects.checkIndex(prefix, 33);
        int mask = prefix == 0 ? 0 : -1 << 32 - prefix;
        int wanted = network & mask;
        int lanes = INTS.length();
        for (int row = 0; row < rows; row += lanes) {
            IntVector found = row + lanes <= rows
                ? IntVector.fromMemorySegment(INTS, values, 4L * row, NATIVE)
                : IntVector.fromMemorySegment(INTS, values, 4L * row, NATIVE, INTS.indexInRange(row, rows));
            and(row, lanes, found.and(mask).compare(VectorOperators.EQ, wanted).toLong());
        }
        return this;
    }

    /** Returns the number of marked rows. */
    public int count() {
        int sum = 0;
        for (int word = 0; word < (rows + 63) / 64; word++) {
            sum += Long.bitCount(words[word]);
        }
        return sum;
    }

    /** Returns 64 marks: bit i is 1 if row {@code 64 * word + i} is marked. */
    public long word(int word) {
        java.util.Objects.checkIndex(word, (rows + 63) / 64);
        return words[word];
    }

    /** Returns the first marked row from {@code row} on; -1 if there is none. */
    public int next(int row) {
        if (row >= rows) {
            return -1;
        }
        int word = row >> 6;
        long left = words[word] & -1L << row;
        while (left == 0) {
            if (++word >= (rows + 63) / 64) {
                return -1;
            }
            left = words[word];
        }
        return (word << 6) + Long.numberOfTrailingZeros(left);
    }

    /** Keeps the marks whose bits are 1, of {@code lanes} marks, a divisor of 64. */
    private void and(int row, int lanes, long bits) {
        long others = lanes == 64 ? 0 : ~((1L << lanes) - 1 << row);
        words[row >> 6] &= bits << row | others;
    }

    private MemorySegment segment(Columns columns, Field field, int bytes) {
        MemorySegment values = columns.segment(field);
        if (values.byteSize() != (long) bytes * columns.capacity() || rows > columns.capacity()) {
            throw new IllegalArgumentException(field + " is no field of " + bytes + " bytes for " + rows + " rows");
        }
        return values;
    }
}
