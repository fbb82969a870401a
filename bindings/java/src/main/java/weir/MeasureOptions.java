package weir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import weir.ffi.Native;

/** Settings of a measurement. Each method changes one setting and returns these settings. */
public final class MeasureOptions {
    /** Table that counts the keys. */
    public enum Sketch {
        /** The largest keys, with bounds that always hold. */
        HEAVY(Native.WEIR_HEAVY),
        /** Every key, as long as there is memory. */
        EXACT(Native.WEIR_EXACT),
        /** Count-Min, with a heavy table that names the keys. */
        COUNT_MIN(Native.WEIR_CMS),
        /** Count-Min with conservative update: closer, never lower. */
        COUNT_MIN_CONSERVATIVE(Native.WEIR_CMS_CONSERVATIVE),
        /** Simple Hash Table: one slot for each hash, without a bound. */
        SIMPLE(Native.WEIR_SHT),
        /** MV-Sketch: buckets vote for their largest keys, with bounds that always hold. */
        MAJORITY(Native.WEIR_MV),
        /** Reversible Sketch: IPv4 addresses and pairs, recovered from counters and their changes. */
        REVERSIBLE(Native.WEIR_RS),
        /** Set-per-entry Reversible Sketch of the study: flows, without a bound, and slow. */
        REVERSIBLE_SETS(Native.WEIR_RS_SET);

        private final int number;

        Sketch(int number) {
            this.number = number;
        }
    }

    private final List<String> keys = new ArrayList<>();
    private int flags;
    private int rows;
    private int changers;
    private Sketch sketch = Sketch.HEAVY;
    private long memory;
    private long windowNanos;
    private long lateNanos;
    private long seed;
    private final List<String> geo = new ArrayList<>();
    private String columns = "";

    /**
     * Adds a key to count by, with a table of its own: {@code 5tuple}, {@code conversation}, {@code src}, {@code dst}, {@code host},
     * {@code dport}, {@code service}, {@code vlan} and others of {@code weir help keys}, a prefix such as {@code src/24}, or fields with
     * commas such as {@code src,dport}. Without any key, 5-tuples are counted.
     */
    public MeasureOptions key(String key) {
        keys.add(key);
        return this;
    }

    /** Has bytes rank the keys, and not packets. */
    public MeasureOptions byBytes() {
        flags |= Native.WEIR_BY_BYTES;
        return this;
    }

    /** Has numbers of different addresses at the other end rank the keys. */
    public MeasureOptions byPeers() {
        flags |= Native.WEIR_BY_PEERS;
        return this;
    }

    /** Has numbers of different destination ports rank the keys. */
    public MeasureOptions byPorts() {
        flags |= Native.WEIR_BY_PORTS;
        return this;
    }

    /** Has numbers of different pairs of a peer and a destination port rank the keys. */
    public MeasureOptions byContacts() {
        flags |= Native.WEIR_BY_CONTACTS;
        return this;
    }

    /** Sets the most rows of a table; 10 by default. */
    public MeasureOptions rows(int rows) {
        this.rows = rows;
        return this;
    }

    /** Adds a table of the keys that changed most since the window before, with this many rows. */
    public MeasureOptions changers(int rows) {
        changers = rows;
        return this;
    }

    /** Sets the table that counts the keys. */
    public MeasureOptions sketch(Sketch sketch) {
        this.sketch = sketch;
        return this;
    }

    /** Sets the memory of each table, bytes. The default follows the caches (heavy, 1 to 4 MiB) or is 4 MiB. There is a table for each key, for each worker, for each open window. */
    public MeasureOptions memory(long bytes) {
        memory = bytes;
        return this;
    }

    /** Asks for an answer about each window of packet time of this length. */
    public MeasureOptions window(Duration length) {
        windowNanos = length.toNanos();
        return this;
    }

    /** Sets the time that a window waits for late packets; 1 s by default, or the window if that is shorter; of interfaces 200 ms. */
    public MeasureOptions late(Duration time) {
        lateNanos = time.toNanos();
        return this;
    }

    /** Has files with windows read one after another, and not by the time of their packets. */
    public MeasureOptions noMerge() {
        flags |= Native.WEIR_NO_MERGE;
        return this;
    }

    /** Sets the seed of the hash functions. Without it a seed is drawn, so that nobody can aim collisions. */
    public MeasureOptions seed(long seed) {
        flags |= Native.WEIR_SEED;
        this.seed = seed;
        return this;
    }

    /** Adds a database in the MaxMind DB format, for the keys {@code asn}, {@code country} and {@code network}, and for columns. */
    public MeasureOptions geo(String file) {
        geo.add(file);
        return this;
    }

    /** Sets the columns of the rows, by names of {@code weir help columns} with commas between them, such as {@code key,src,src_country,packets}. */
    public MeasureOptions columns(String names) {
        columns = names;
        return this;
    }

    /** Examines the health of TCP: {@link Measurement.Answer#tcp}. */
    public MeasureOptions healthTcp() {
        flags |= Native.WEIR_HEALTH_TCP;
        return this;
    }

    /** Examines the health of DNS: {@link Measurement.Answer#dns}. */
    public MeasureOptions healthDns() {
        flags |= Native.WEIR_HEALTH_DNS;
        return this;
    }

    /** Counts fragments and messages that a packet is too big: {@code health.mtu} of the answer. */
    public MeasureOptions healthMtu() {
        flags |= Native.WEIR_HEALTH_MTU;
        return this;
    }

    /**
     * Searches each window for findings, {@link Measurement.Answer#findings}: scans, floods, storms, losses and new hosts; with
     * {@link #healthDns} also slow DNS servers. Needs windows of 1 s or longer.
     */
    public MeasureOptions findings() {
        flags |= Native.WEIR_FINDINGS;
        return this;
    }

    MemorySegment in(Arena arena) {
        MemorySegment settings = arena.allocate(Native.weir_measure_options.LAYOUT);
        settings.set(
            ValueLayout.JAVA_INT, Native.weir_measure_options.size, (int) Native.weir_measure_options.LAYOUT.byteSize());
        settings.set(ValueLayout.JAVA_INT, Native.weir_measure_options.flags, flags);
        settings.set(ValueLayout.ADDRESS, Native.weir_measure_options.keys, Source.texts(arena, keys.toArray(String[]::new)));
        settings.set(ValueLayout.JAVA_INT, Native.weir_measure_options.key_count, keys.size());
        settings.set(ValueLayout.JAVA_INT, Native.weir_measure_options.rows, rows);
        settings.set(ValueLayout.JAVA_INT, Native.weir_measure_options.changers, changers);
        settings.set(ValueLayout.JAVA_INT, Native.weir_measure_options.sketch, sketch.number);
        settings.set(ValueLayout.JAVA_LONG, Native.weir_measure_options.memory, memory);
        settings.set(ValueLayout.JAVA_LONG, Native.weir_measure_options.window_ns, windowNanos);
        settings.set(ValueLayout.JAVA_LONG, Native.weir_measure_options.late_ns, lateNanos);
        settings.set(ValueLayout.JAVA_LONG, Native.weir_measure_options.seed, seed);
        settings.set(ValueLayout.ADDRESS, Native.weir_measure_options.geo, Source.texts(arena, geo.toArray(String[]::new)));
        settings.set(ValueLayout.JAVA_INT, Native.weir_measure_options.geo_count, geo.size());
        if (!columns.isEmpty()) {
            settings.set(ValueLayout.ADDRESS, Native.weir_measure_options.columns, Source.text(arena, columns));
        }
        return settings;
    }
}
