package weir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Objects;
import weir.ffi.Native;

/**
 * Fields of many packets, each field in an array of its own outside the heap. The library reads the headers; a program reads the
 * arrays, with the Vector API if it likes: {@link #segment}.
 *
 * <pre>{@code
 * Columns columns = new Columns(4096, Field.IPV4_SOURCE, Field.PROTOCOL);
 * for (int rows = columns.begin(batch); rows > 0; rows = columns.next(batch)) { ... }
 * }</pre>
 *
 * <p><b>Cost</b>: one call for as many packets as there is room for; each frame is read once. No allocation. <b>Threads</b>: one at a
 * time.
 */
public final class Columns {
    private final Field[] fields;
    private final MemorySegment[] segments;
    private final MemorySegment structs;
    /** Rows written, next packet, handle of an error. */
    private final MemorySegment results;

    private final MemorySegment behind;
    private final MemorySegment error;
    private final int capacity;
    private boolean passedOnly;
    private int first;
    private int rows;

    /** Makes columns with room for {@code capacity} packets. */
    public Columns(int capacity, Field... fields) {
        WeirException.checkLibrary();
        if (capacity < 1 || fields.length == 0) {
            throw new IllegalArgumentException("columns for " + capacity + " packets, of " + fields.length + " fields");
        }
        Arena arena = Arena.ofAuto();
        this.capacity = capacity;
        this.fields = fields.clone();
        segments = new MemorySegment[Field.values().length];
        structs = arena.allocate(Native.weir_column.LAYOUT, fields.length);
        results = arena.allocate(16, 8);
        behind = results.asSlice(4);
        error = results.asSlice(8);
        for (int i = 0; i < fields.length; i++) {
            MemorySegment values = arena.allocate((long) fields[i].bytes * capacity, 64);
            segments[fields[i].ordinal()] = values;
            long at = Native.weir_column.LAYOUT.byteSize() * i;
            structs.set(ValueLayout.JAVA_INT, at + Native.weir_column.field, fields[i].number);
            structs.set(ValueLayout.JAVA_INT, at + Native.weir_column.capacity, capacity);
            structs.set(ValueLayout.ADDRESS, at + Native.weir_column.values, values);
        }
    }

    /** Fills the columns with the first packets of a batch. Returns the number of rows; 0 if the batch is empty. */
    public int begin(Batch batch) {
        passedOnly = false;
        first = 0;
        return next(batch);
    }

    /** As {@link #begin}, with the packets that passed the filter. */
    public int beginPassed(Batch batch) {
        passedOnly = true;
        first = 0;
        return next(batch);
    }

    /** Fills the columns with further packets of the batch. Returns the number of rows; 0 after the last. */
    public int next(Batch batch) {
        batch.checkHeld();
        if (first >= batch.size) {
            rows = 0;
            return 0;
        }
        try {
            int status = (int) Native.weir_fill.invokeExact(
                batch.lease(), first, passedOnly ? 1 : 0, structs, (long) fields.length, results, behind, error);
            if (status != Native.WEIR_OK) {
                throw WeirException.of(status, error);
            }
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        }
        rows = results.get(ValueLayout.JAVA_INT, 0);
        first = results.get(ValueLayout.JAVA_INT, 4);
        return rows;
    }

    /** Fills the columns with at most {@code most} packets from number {@code from} on. Returns the number of rows, at least 1. */
    int fill(Batch batch, int from, int most) {
        for (int i = 0; i < fields.length; i++) {
            structs.set(ValueLayout.JAVA_INT, Native.weir_column.LAYOUT.byteSize() * i + Native.weir_column.capacity, most);
        }
        passedOnly = false;
        first = from;
        return next(batch);
    }

    /** Returns the number of packets for which there is room. */
    public int capacity() {
        return capacity;
    }

    /** Returns the array of a field, in native byte order. It stays as long as it is reachable; each fill writes over it. */
    public MemorySegment segment(Field field) {
        MemorySegment segment = segments[field.ordinal()];
        if (segment == null) {
            throw new IllegalArgumentException("there is no column " + field);
        }
        return segment;
    }

    /** Returns a number of 4 bytes or less. A number of 4 bytes has the sign of an {@code int}; {@link #getLong} returns unsigned numbers. */
    public int getInt(Field field, int row) {
        Objects.checkIndex(row, rows);
        MemorySegment segment = segment(field);
        return switch (field.bytes) {
            case 1 -> segment.get(ValueLayout.JAVA_BYTE, row) & 0xff;
            case 2 -> segment.getAtIndex(ValueLayout.JAVA_SHORT, row) & 0xffff;
            case 4 -> segment.getAtIndex(ValueLayout.JAVA_INT, row);
            default -> throw new IllegalArgumentException(field + " is not a number of 4 bytes");
        };
    }

    /** Returns a number of 8 bytes or less: a length on the wire may have 32 bits, and the sum of some more. */
    public long getLong(Field field, int row) {
        return switch (field.bytes) {
            case 16 -> throw new IllegalArgumentException(field + " is not a number");
            case 8 -> {
                Objects.checkIndex(row, rows);
                yield segment(field).getAtIndex(ValueLayout.JAVA_LONG, row);
            }
            case 4 -> field.isOffset() ? getInt(field, row) : Integer.toUnsignedLong(getInt(field, row));
            default -> getInt(field, row);
        };
    }
}
