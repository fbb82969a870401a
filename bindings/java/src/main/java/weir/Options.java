package weir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.List;
import weir.ffi.Native;

/**
 * Settings of a source. Each method returns a copy with one setting changed.
 *
 * @param filter filter in the language of libpcap; empty for all packets
 * @param splits further filters, each of which marks some of the packets that pass
 * @param flags {@code WEIR_MERGE} and so on of {@link Native}, added
 * @param workers threads that read and filter files; 0 for one for each processor
 * @param limit number of packets that pass, after which the source ends; 0 for no limit
 * @param ringBytes memory for packets of an interface that were not taken yet, bytes; 0 for 32 MiB
 * @param latencyNanos longest time for which a packet of an interface waits for others, ns; 0 for 50 ms. AF_PACKET takes whole milliseconds,
 *     and smaller blocks for shorter times, down to 128 KiB: then a ring of 32 MiB has room for 256 times the latency of few packets
 * @param batches most batches that wait or are held, up to 4096; 0 for 64
 * @param fromNanos the least time of the packets that are wanted, ns since 1970; 0 for no limit
 * @param toNanos the greatest time; 0 for no limit
 * @param rules rules of a firewall, in the language of {@code weir firewall}; empty for none
 * @param yesTake interfaces whose packets may be taken away from this host, although they carry its default route or the login of this
 *     program, or are ports of a bridge
 * @param sets sets of addresses that expressions name as in {@code src @banned}: each is a name and a file, such as {@code banned=banned.txt},
 *     which has an address, a prefix or a range a line; {@code #} begins a comment
 * @param dedup duplicates are left out of the packets that pass: packets with the bytes of one of so many packets that pass, themselves
 *     included; 0 for none, or by {@code dedupNanos}
 * @param dedupNanos duplicates are packets with the bytes of a packet up to this time before, ns; 0 for none, or by {@code dedup}
 * @param debug whether batches are guarded: see {@link Source}
 */
public record Options(
    String filter,
    List<String> splits,
    int flags,
    int workers,
    long limit,
    long ringBytes,
    long latencyNanos,
    int batches,
    long fromNanos,
    long toNanos,
    String rules,
    List<String> yesTake,
    List<String> sets,
    int dedup,
    long dedupNanos,
    boolean debug) {
    /** The default of each setting. */
    public static final Options DEFAULT = new Options("", List.of(), 0, 0, 0, 0, 0, 0, 0, 0, "", List.of(), List.of(), 0, 0, false);

    /** Sets the filter, in the language of libpcap. */
    public Options withFilter(String filter) {
        return new Options(filter, splits, flags, workers, limit, ringBytes, latencyNanos, batches, fromNanos, toNanos, rules, yesTake, sets, dedup, dedupNanos, debug);
    }

    /** Sets further filters, each of which marks some of the packets that pass. */
    public Options withSplits(String... splits) {
        return new Options(filter, List.of(splits), flags, workers, limit, ringBytes, latencyNanos, batches, fromNanos, toNanos, rules, yesTake, sets, dedup, dedupNanos, debug);
    }

    /** Adds flags such as {@link Native#WEIR_MERGE}. */
    public Options withFlags(int more) {
        return new Options(filter, splits, flags | more, workers, limit, ringBytes, latencyNanos, batches, fromNanos, toNanos, rules, yesTake, sets, dedup, dedupNanos, debug);
    }

    /** Sets the number of threads that read and filter files. */
    public Options withWorkers(int workers) {
        return new Options(filter, splits, flags, workers, limit, ringBytes, latencyNanos, batches, fromNanos, toNanos, rules, yesTake, sets, dedup, dedupNanos, debug);
    }

    /** Sets the number of packets that pass, after which the source ends. */
    public Options withLimit(long limit) {
        return new Options(filter, splits, flags, workers, limit, ringBytes, latencyNanos, batches, fromNanos, toNanos, rules, yesTake, sets, dedup, dedupNanos, debug);
    }

    /** Sets the memory for packets of an interface that were not taken yet, bytes. */
    public Options withRing(long bytes) {
        return new Options(filter, splits, flags, workers, limit, bytes, latencyNanos, batches, fromNanos, toNanos, rules, yesTake, sets, dedup, dedupNanos, debug);
    }

    /** Sets the longest time for which a packet of an interface waits for others. */
    public Options withLatency(Duration latency) {
        return new Options(filter, splits, flags, workers, limit, ringBytes, latency.toNanos(), batches, fromNanos, toNanos, rules, yesTake, sets, dedup, dedupNanos, debug);
    }

    /**
     * Sets the largest number of batches that wait or are held. With AF_PACKET a batch is a block of the ring, even if it holds one packet
     * (1 MiB; of a ring below 32 MiB less), and blocks are filled in turn: the kernel stops at a block in use. Release batches about in
     * their order.
     */
    public Options withBatches(int most) {
        return new Options(filter, splits, flags, workers, limit, ringBytes, latencyNanos, most, fromNanos, toNanos, rules, yesTake, sets, dedup, dedupNanos, debug);
    }

    /** Sets rules of a firewall, in the language of {@code weir firewall}: packets that they deny do not pass. */
    public Options withRules(String rules) {
        return new Options(filter, splits, flags, workers, limit, ringBytes, latencyNanos, batches, fromNanos, toNanos, rules, yesTake, sets, dedup, dedupNanos, debug);
    }

    /** Chooses the packets from one time to another, ns since 1970; 0 for no limit. */
    public Options withTimes(long fromNanos, long toNanos) {
        return new Options(filter, splits, flags, workers, limit, ringBytes, latencyNanos, batches, fromNanos, toNanos, rules, yesTake, sets, dedup, dedupNanos, debug);
    }

    /**
     * Sets interfaces whose packets AF_XDP or DPDK may take away from this host, although they carry its default route or the login of
     * this program, or are ports of a bridge.
     */
    public Options withYesTake(String... interfaces) {
        return new Options(
            filter, splits, flags, workers, limit, ringBytes, latencyNanos, batches, fromNanos, toNanos, rules, List.of(interfaces), sets, dedup, dedupNanos, debug);
    }

    /**
     * Sets sets of addresses for expressions: each is a name and a file, such as {@code banned=banned.txt}, which the opening reads. Then
     * {@code src @banned} matches packets from one of its addresses.
     */
    public Options withSets(String... sets) {
        return new Options(
            filter, splits, flags, workers, limit, ringBytes, latencyNanos, batches, fromNanos, toNanos, rules, yesTake, List.of(sets), dedup, dedupNanos, debug);
    }

    /** Leaves out packets with the bytes of one of so many packets that pass, themselves included: 2 to 1 000 000. */
    public Options withDedup(int packets) {
        return new Options(
            filter, splits, flags, workers, limit, ringBytes, latencyNanos, batches, fromNanos, toNanos, rules, yesTake, sets, packets, 0, debug);
    }

    /** Leaves out packets with the bytes of a packet up to this time before. */
    public Options withDedup(Duration time) {
        return new Options(
            filter, splits, flags, workers, limit, ringBytes, latencyNanos, batches, fromNanos, toNanos, rules, yesTake, sets, 0, time.toNanos(),
            debug);
    }

    /** Guards batches: see {@link Source}. */
    public Options withDebug() {
        return new Options(filter, splits, flags, workers, limit, ringBytes, latencyNanos, batches, fromNanos, toNanos, rules, yesTake, sets, dedup, dedupNanos, true);
    }

    /** These settings for C. */
    MemorySegment in(Arena arena) {
        MemorySegment settings = arena.allocate(Native.weir_options.LAYOUT);
        settings.set(ValueLayout.JAVA_INT, Native.weir_options.size, (int) Native.weir_options.LAYOUT.byteSize());
        settings.set(ValueLayout.JAVA_INT, Native.weir_options.flags, flags);
        settings.set(ValueLayout.ADDRESS, Native.weir_options.filter, Source.text(arena, filter));
        settings.set(ValueLayout.ADDRESS, Native.weir_options.splits, Source.texts(arena, splits.toArray(String[]::new)));
        settings.set(ValueLayout.JAVA_INT, Native.weir_options.split_count, splits.size());
        settings.set(ValueLayout.JAVA_INT, Native.weir_options.workers, workers);
        settings.set(ValueLayout.JAVA_LONG, Native.weir_options.limit, limit);
        settings.set(ValueLayout.JAVA_LONG, Native.weir_options.ring, ringBytes);
        settings.set(ValueLayout.JAVA_LONG, Native.weir_options.latency_ns, latencyNanos);
        settings.set(ValueLayout.JAVA_INT, Native.weir_options.batches, batches);
        settings.set(ValueLayout.JAVA_LONG, Native.weir_options.from_ns, fromNanos);
        settings.set(ValueLayout.JAVA_LONG, Native.weir_options.to_ns, toNanos);
        if (!rules.isEmpty()) {
            settings.set(ValueLayout.ADDRESS, Native.weir_options.rules, Source.text(arena, rules));
        }
        if (!yesTake.isEmpty()) {
            settings.set(ValueLayout.ADDRESS, Native.weir_options.yes_take, Source.text(arena, String.join(",", yesTake)));
        }
        settings.set(ValueLayout.ADDRESS, Native.weir_options.sets, Source.texts(arena, sets.toArray(String[]::new)));
        settings.set(ValueLayout.JAVA_INT, Native.weir_options.set_count, sets.size());
        settings.set(ValueLayout.JAVA_INT, Native.weir_options.dedup, dedup);
        settings.set(ValueLayout.JAVA_LONG, Native.weir_options.dedup_ns, dedupNanos);
        return settings;
    }
}
