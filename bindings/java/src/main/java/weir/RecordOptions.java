package weir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import weir.ffi.Native;

/** Settings of a recording. Each method changes one setting and returns these settings. */
public final class RecordOptions {
    private final List<String> triggers = new ArrayList<>();
    private final List<String> thresholds = new ArrayList<>();
    private String keep = "all";
    private long ram;
    private long disk;
    private long ageNanos;
    private long cutoff;
    private int compress;
    private long beforeNanos;
    private long afterNanos;
    private long cooldownNanos;
    private int maxFiles;
    private long reserve;

    /** Sets the memory for packets, bytes; 4 GiB by default, or a quarter of the free memory if that is less. */
    public RecordOptions ram(long bytes) {
        ram = bytes;
        return this;
    }

    /** Keeps packets on disk too, in up to this many bytes, at least 8 MiB. Files that triggers save are not counted. */
    public RecordOptions disk(long bytes) {
        disk = bytes;
        return this;
    }

    /** Sets the bytes of the file system that stay free; 1 GiB by default. */
    public RecordOptions reserve(long bytes) {
        reserve = bytes;
        return this;
    }

    /** Sets the longest time for which packets are kept; by default they are kept as long as there is room. */
    public RecordOptions age(Duration age) {
        ageNanos = age.toNanos();
        return this;
    }

    /** Keeps only the first bytes of each conversation. */
    public RecordOptions cutoff(long bytes) {
        cutoff = bytes;
        return this;
    }

    /** Sets the level of zstd, 1 to 19, with which complete files of the record are compressed. By default they are not. */
    public RecordOptions compress(int level) {
        compress = level;
        return this;
    }

    /** Adds a trigger that a packet fires: {@code NAME=EXPR}, such as {@code dns=udp port 53}; or the ready rule {@code scan}. */
    public RecordOptions trigger(String nameAndExpression) {
        triggers.add(nameAndExpression);
        return this;
    }

    /** Adds a trigger that a threshold fires: {@code NAME=KEY>VALUE FIGURE/WINDOW}, such as {@code many=src>100 peers/10s}. */
    public RecordOptions threshold(String nameAndSpecification) {
        thresholds.add(nameAndSpecification);
        return this;
    }

    /** Sets the time before and after a trigger fires of which packets are saved; 10 s and 5 s by default. */
    public RecordOptions around(Duration before, Duration after) {
        beforeNanos = before.toNanos();
        afterNanos = after.toNanos();
        return this;
    }

    /** Sets the packets that triggers save: {@code all}, {@code flow}, {@code host} or an expression. */
    public RecordOptions keep(String what) {
        keep = what;
        return this;
    }

    /** Sets the time after a file during which its trigger does not fire. */
    public RecordOptions cooldown(Duration time) {
        cooldownNanos = time.toNanos();
        return this;
    }

    /** Sets the most files that a trigger saves; 1000 by default. */
    public RecordOptions maxFiles(int files) {
        maxFiles = files;
        return this;
    }

    MemorySegment in(Arena arena) {
        MemorySegment settings = arena.allocate(Native.weir_record_options.LAYOUT);
        settings.set(
            ValueLayout.JAVA_INT, Native.weir_record_options.size, (int) Native.weir_record_options.LAYOUT.byteSize());
        settings.set(
            ValueLayout.ADDRESS, Native.weir_record_options.triggers, Source.texts(arena, triggers.toArray(String[]::new)));
        settings.set(ValueLayout.JAVA_INT, Native.weir_record_options.trigger_count, triggers.size());
        settings.set(
            ValueLayout.ADDRESS, Native.weir_record_options.thresholds, Source.texts(arena, thresholds.toArray(String[]::new)));
        settings.set(ValueLayout.JAVA_INT, Native.weir_record_options.threshold_count, thresholds.size());
        settings.set(ValueLayout.JAVA_INT, Native.weir_record_options.compress, compress);
        settings.set(ValueLayout.ADDRESS, Native.weir_record_options.keep, Source.text(arena, keep));
        settings.set(ValueLayout.JAVA_LONG, Native.weir_record_options.ram, ram);
        settings.set(ValueLayout.JAVA_LONG, Native.weir_record_options.disk, disk);
        settings.set(ValueLayout.JAVA_LONG, Native.weir_record_options.reserve, reserve);
        settings.set(ValueLayout.JAVA_LONG, Native.weir_record_options.age_ns, ageNanos);
        settings.set(ValueLayout.JAVA_LONG, Native.weir_record_options.cutoff, cutoff);
        settings.set(ValueLayout.JAVA_LONG, Native.weir_record_options.before_ns, beforeNanos);
        settings.set(ValueLayout.JAVA_LONG, Native.weir_record_options.after_ns, afterNanos);
        settings.set(ValueLayout.JAVA_LONG, Native.weir_record_options.cooldown_ns, cooldownNanos);
        settings.set(ValueLayout.JAVA_INT, Native.weir_record_options.max_files, maxFiles);
        return settings;
    }
}
