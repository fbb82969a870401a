import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.List;
import weir.Batch;
import weir.Columns;
import weir.Field;
import weir.Options;
import weir.Packet;
import weir.Source;
import weir.UncheckedPackets;

/** The programs of {@code weir-bench language} in Java: CASE FILE TURNS PACKETS. Prints what the one in Rust prints. */
public final class Language {
    private static final int PLACES = 4096;
    private static final int UDP = 17;
    private static final int ROOM = 4096;
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    /** Addresses in a table of open addressing; 0 is an empty place. */
    private static final int[] SET = new int[PLACES];

    static {
        for (int i = 0; i < 1000; i++) {
            int address = 0x0a000000 | i * (int) 2654435761L >>> 20;
            int at = place(address);
            while (SET[at] != 0 && SET[at] != address) {
                at = at + 1 & PLACES - 1;
            }
            SET[at] = address;
        }
    }

    private static int place(int address) {
        return address * 0x9e3779b1 >>> 20;
    }

    static boolean has(int address) {
        int at = place(address);
        while (true) {
            int found = SET[at];
            if (found == address) {
                return true;
            }
            if (found == 0) {
                return false;
            }
            at = at + 1 & PLACES - 1;
        }
    }

    static long checked(Batch batch) {
        long sum = 0;
        Packet packet = batch.packet();
        int size = batch.size();
        for (int i = 0; i < size; i++) {
            packet.at(i);
            if (packet.isIpv4() && packet.protocol() == UDP && has(packet.ipv4Source())) {
                sum += packet.wireLength() + (1L << 32);
            }
        }
        return sum;
    }

    private static long unchecked(Batch batch) {
        long sum = 0;
        int size = batch.size();
        for (int i = 0; i < size; i++) {
            if (UncheckedPackets.captured(batch, i) < 34) {
                continue;
            }
            long at = UncheckedPackets.address(batch, i);
            if (UncheckedPackets.shortAt(at + 12) == 0x0800
                && UncheckedPackets.byteAt(at + 14) >> 4 == 4
                && UncheckedPackets.byteAt(at + 23) == UDP
                && has(UncheckedPackets.intAt(at + 26))) {
                sum += UncheckedPackets.wireLength(batch, i) + (1L << 32);
            }
        }
        return sum;
    }

    private static long columns(Batch batch, Columns columns) {
        long sum = 0;
        var versions = columns.segment(Field.IP_VERSION);
        var protocols = columns.segment(Field.PROTOCOL);
        var sources = columns.segment(Field.IPV4_SOURCE);
        var lengths = columns.segment(Field.WIRE_LENGTH);
        for (int rows = columns.begin(batch); rows > 0; rows = columns.next(batch)) {
            for (int row = 0; row < rows; row++) {
                if (versions.get(java.lang.foreign.ValueLayout.JAVA_BYTE, row) == 4
                    && protocols.get(java.lang.foreign.ValueLayout.JAVA_BYTE, row) == UDP
                    && has(sources.getAtIndex(java.lang.foreign.ValueLayout.JAVA_INT, row))) {
                    sum += lengths.getAtIndex(java.lang.foreign.ValueLayout.JAVA_INT, row) + (1L << 32);
                }
            }
        }
        return sum;
    }

    /** A packet as an object, as the first steps of the thesis have it. */
    private static final class Frame {
        byte[] bytes;
        int captured;
        long wireLength;
        long address;
    }

    private static boolean matches(byte[] bytes, int captured) {
        return captured >= 34
            && bytes[12] == 8
            && bytes[13] == 0
            && bytes[14] >> 4 == 4
            && bytes[23] == UDP
            && has((bytes[26] & 0xff) << 24 | (bytes[27] & 0xff) << 16 | (bytes[28] & 0xff) << 8 | bytes[29] & 0xff);
    }

    /** Step 1: an object with a copy for each packet, in a list for each batch. */
    private static long objects(Batch batch) {
        List<Frame> frames = new ArrayList<>();
        Packet packet = batch.packet();
        for (int i = 0; i < batch.size(); i++) {
            packet.at(i);
            Frame frame = new Frame();
            frame.captured = packet.captured();
            frame.bytes = new byte[frame.captured];
            frame.wireLength = packet.wireLength();
            packet.copyTo(0, frame.bytes, 0, frame.captured);
            frames.add(frame);
        }
        return sum(frames, frames.size());
    }

    private static final List<Frame> FRAMES = new ArrayList<>();

    /** Step 2: objects, their copies and the list are used again. */
    private static long reused(Batch batch) {
        Packet packet = batch.packet();
        int size = batch.size();
        while (FRAMES.size() < size) {
            Frame frame = new Frame();
            frame.bytes = new byte[2048];
            FRAMES.add(frame);
        }
        for (int i = 0; i < size; i++) {
            packet.at(i);
            Frame frame = FRAMES.get(i);
            frame.captured = Math.min(packet.captured(), 2048);
            frame.wireLength = packet.wireLength();
            packet.copyTo(0, frame.bytes, 0, frame.captured);
        }
        return sum(FRAMES, size);
    }

    private static long sum(List<Frame> frames, int size) {
        long sum = 0;
        for (int i = 0; i < size; i++) {
            Frame frame = frames.get(i);
            if (matches(frame.bytes, frame.captured)) {
                sum += frame.wireLength + (1L << 32);
            }
        }
        return sum;
    }

    private static boolean matches(long at, int captured) {
        return captured >= 34
            && UncheckedPackets.shortAt(at + 12) == 0x0800
            && UncheckedPackets.byteAt(at + 14) >> 4 == 4
            && UncheckedPackets.byteAt(at + 23) == UDP
            && has(UncheckedPackets.intAt(at + 26));
    }

    /** Step 3: no copy; objects hold addresses, which one accessor reads. */
    private static long accessor(Batch batch) {
        int size = batch.size();
        while (FRAMES.size() < size) {
            FRAMES.add(new Frame());
        }
        for (int i = 0; i < size; i++) {
            Frame frame = FRAMES.get(i);
            frame.address = UncheckedPackets.address(batch, i);
            frame.captured = UncheckedPackets.captured(batch, i);
            frame.wireLength = UncheckedPackets.wireLength(batch, i);
        }
        long sum = 0;
        for (int i = 0; i < size; i++) {
            Frame frame = FRAMES.get(i);
            if (matches(frame.address, frame.captured)) {
                sum += frame.wireLength + (1L << 32);
            }
        }
        return sum;
    }

    private static final java.lang.foreign.MemorySegment ADDRESSES = java.lang.foreign.Arena.global().allocate(24L << 16, 8);

    /** Step 4: addresses are written outside the heap, and read there. */
    private static long offheap(Batch batch) {
        long sum = 0;
        for (int first = 0; first < batch.size(); first += 1 << 16) {
            int size = Math.min(batch.size() - first, 1 << 16);
            for (int i = 0; i < size; i++) {
                ADDRESSES.setAtIndex(java.lang.foreign.ValueLayout.JAVA_LONG, 3L * i, UncheckedPackets.address(batch, first + i));
                ADDRESSES.setAtIndex(java.lang.foreign.ValueLayout.JAVA_LONG, 3L * i + 1, UncheckedPackets.captured(batch, first + i));
                ADDRESSES.setAtIndex(java.lang.foreign.ValueLayout.JAVA_LONG, 3L * i + 2, UncheckedPackets.wireLength(batch, first + i));
            }
            for (int i = 0; i < size; i++) {
                long at = ADDRESSES.getAtIndex(java.lang.foreign.ValueLayout.JAVA_LONG, 3L * i);
                if (matches(at, (int) ADDRESSES.getAtIndex(java.lang.foreign.ValueLayout.JAVA_LONG, 3L * i + 1))) {
                    sum += ADDRESSES.getAtIndex(java.lang.foreign.ValueLayout.JAVA_LONG, 3L * i + 2) + (1L << 32);
                }
            }
        }
        return sum;
    }

    public static void main(String[] arguments) {
        String name = arguments[0];
        String file = arguments[1];
        int turns = Integer.parseInt(arguments[2]);
        long atLeast = Long.parseLong(arguments[3]);
        Options options = Options.DEFAULT.withBatches(4096).withWorkers(1);
        switch (name) {
            case "handle" -> {
                handle(options, file, turns, atLeast);
                return;
            }
            case "billion" -> {
                billion(file, atLeast);
                return;
            }
            default -> {
                if (name.startsWith("batch:")) {
                    String[] names = new String[Integer.parseInt(name.substring(6))];
                    java.util.Arrays.fill(names, file);
                    batches(options, names, turns, atLeast);
                    return;
                }
                if (name.startsWith("bursts:")) {
                    bursts(options, file, Integer.parseInt(name.substring(7)), turns, atLeast);
                    return;
                }
                if (name.startsWith("workers:")) {
                    Workers.run(name.substring(8), file, turns, atLeast);
                    return;
                }
            }
        }
        if (name.equals("capture")) {
            WarmUp.run(options, Language::capture);
            Batch batch = new Batch();
            for (int turn = 0; turn < turns; turn++) {
                SUMS[0] = SUMS[1] = SUMS[2] = 0;
                while (SUMS[1] < atLeast) {
                    try (Source source = Source.open(options, file)) {
                        capture(source, batch);
                    }
                }
                System.out.println(SUMS[0] + " " + SUMS[1] + " " + SUMS[2]);
            }
            return;
        }
        Source source = Source.open(options, file);
        List<Batch> held = new ArrayList<>();
        long all = 0;
        for (Batch batch = new Batch(); source.next(batch); batch = new Batch()) {
            held.add(batch);
            all += batch.size();
        }
        Batch[] batches = held.toArray(Batch[]::new);
        Columns room = new Columns(ROOM, Field.IP_VERSION, Field.PROTOCOL, Field.IPV4_SOURCE, Field.WIRE_LENGTH);
        long passes = (atLeast + all - 1) / all;
        for (int turn = 0; turn < turns; turn++) {
            long begun = THREADS.getCurrentThreadCpuTime();
            long sum = 0;
            long seen = 0;
            for (long pass = 0; pass < passes; pass++) {
                for (Batch batch : batches) {
                    sum += switch (name) {
                        case "checked" -> checked(batch);
                        case "unchecked" -> unchecked(batch);
                        case "columns" -> columns(batch, room);
                        case "objects" -> objects(batch);
                        case "reused" -> reused(batch);
                        case "accessor" -> accessor(batch);
                        case "offheap" -> offheap(batch);
                        default -> throw new IllegalArgumentException(name);
                    };
                    seen += batch.size();
                }
            }
            System.out.println(THREADS.getCurrentThreadCpuTime() - begun + " " + seen + " " + sum);
        }
    }

    /** Judges all batches of a file, again and again. Prints for each turn what the programs of this class print. */
    static void judge(String file, int turns, long atLeast, java.util.function.ToLongFunction<Batch> program) {
        List<Batch> held = new ArrayList<>();
        long all = 0;
        Source source = Source.open(Options.DEFAULT.withBatches(4096).withWorkers(1), file);
        for (Batch batch = new Batch(); source.next(batch); batch = new Batch()) {
            held.add(batch);
            all += batch.size();
        }
        long passes = (atLeast + all - 1) / all;
        for (int turn = 0; turn < turns; turn++) {
            long begun = THREADS.getCurrentThreadCpuTime();
            long sum = 0;
            for (long pass = 0; pass < passes; pass++) {
                for (Batch batch : held) {
                    sum += program.applyAsLong(batch);
                }
            }
            System.out.println(THREADS.getCurrentThreadCpuTime() - begun + " " + passes * all + " " + sum);
        }
    }

    /** Waits until the library has read ahead all it may: until its counts stay as they are for 60 ms. */
    static void readAhead(Source source) {
        long last = -1;
        for (int same = 0; same < 4; same++) {
            long now = source.counts().received();
            if (now != last) {
                same = 0;
            }
            last = now;
            try {
                Thread.sleep(20);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    /** Takes and releases batches that are there, without a look at packets. Prints nanoseconds, batches, packets. */
    private static void batches(Options options, String[] names, int turns, long atLeast) {
        WarmUp.run(options, (source, batch) -> take(source, batch, Long.MAX_VALUE));
        Batch batch = new Batch();
        for (int turn = 0; turn < turns; turn++) {
            SUMS[0] = SUMS[1] = SUMS[2] = 0;
            while (SUMS[2] < atLeast) {
                try (Source source = Source.open(options, names)) {
                    readAhead(source);
                    take(source, batch, 0);
                }
            }
            System.out.println(SUMS[0] + " " + SUMS[1] + " " + SUMS[2]);
        }
    }

    /** Bursts that are written before any is taken; and time between them, in which the library reads one, ns. */
    private static final int BURSTS = 1000;

    private static final long GAP = 50_000;

    /**
     * Takes and releases small batches, without a look at packets, from a source that goes on: a named pipe, into which bursts of
     * packets are written. Prints nanoseconds, batches, packets.
     */
    private static void bursts(Options options, String pipe, int packets, int turns, long atLeast) {
        WarmUp.run(options, (source, batch) -> take(source, batch, Long.MAX_VALUE));
        // Opened for both, so that the writer does not wait for a reader.
        try (var writer = new java.io.RandomAccessFile(pipe, "rw")) {
            writer.write(WarmUp.records(0, true));
            byte[] burst = WarmUp.records(packets, false);
            try (Source source = Source.open(options, pipe); Batch batch = new Batch()) {
                for (int turn = 0; turn < turns; turn++) {
                    SUMS[0] = SUMS[1] = SUMS[2] = 0;
                    while (SUMS[1] < atLeast) {
                        for (int i = 0; i < BURSTS; i++) {
                            writer.write(burst);
                            java.util.concurrent.locks.LockSupport.parkNanos(GAP);
                        }
                        java.util.concurrent.locks.LockSupport.parkNanos(400 * GAP);
                        take(source, batch, 0);
                    }
                    System.out.println(SUMS[0] + " " + SUMS[1] + " " + SUMS[2]);
                }
                writer.close();
                while (source.next(batch)) {
                    batch.release();
                }
            }
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }

    /** Takes and releases batches, each of which comes in that time; adds to nanoseconds, batches, packets. */
    private static void take(Source source, Batch batch, long nanos) {
        long begun = System.nanoTime();
        long batches = 0;
        long packets = 0;
        while (source.next(batch, nanos)) {
            packets += batch.size();
            batch.release();
            batches++;
        }
        SUMS[0] += System.nanoTime() - begun;
        SUMS[1] += batches;
        SUMS[2] += packets;
    }

    /** Calls a function that looks a handle up and does nothing else. Prints nanoseconds, calls, and how often there was a split. */
    private static void handle(Options options, String file, int turns, long calls) {
        try (var arena = java.lang.foreign.Arena.ofConfined();
            Source source = Source.open(options, file); Batch batch = new Batch()) {
            source.next(batch);
            var words = arena.allocate(java.lang.foreign.ValueLayout.ADDRESS);
            long lease = batch.lease();
            for (int turn = 0; turn < turns; turn++) {
                long found = 0;
                long begun = THREADS.getCurrentThreadCpuTime();
                for (long call = 0; call < calls; call++) {
                    found += (int) weir.ffi.Native.weir_split.invokeExact(lease, 0, words);
                }
                System.out.println(THREADS.getCurrentThreadCpuTime() - begun + " " + calls + " " + -found);
            }
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    /**
     * Judges packets of one source until there are so many, as a program of a user does. Prints nanoseconds, packets, checksum; and on
     * standard error the bytes that all threads have allocated behind the first tenth, and those of the heap in use.
     */
    private static void billion(String file, long atLeast) {
        var threads = (com.sun.management.ThreadMXBean) THREADS;
        long sum = 0;
        long seen = 0;
        long before = -1;
        long allocated = 0;
        long begun = System.nanoTime();
        // A source of many names is opened once.
        String[] names = new String[100];
        java.util.Arrays.fill(names, file);
        try (Batch batch = new Batch()) {
            while (seen < atLeast) {
                try (Source source = Source.open(Options.DEFAULT.withWorkers(1), names)) {
                    while (seen < atLeast && source.next(batch)) {
                        sum += checked(batch);
                        seen += batch.size();
                        batch.release();
                        if (before < 0 && seen >= atLeast / 10) {
                            before = threads.getTotalThreadAllocatedBytes();
                        }
                    }
                    source.stop();
                    while (source.next(batch)) {
                        batch.release();
                    }
                }
            }
        }
        allocated = threads.getTotalThreadAllocatedBytes() - before;
        long ns = System.nanoTime() - begun;
        Runtime runtime = Runtime.getRuntime();
        System.err.println(allocated + " " + (runtime.totalMemory() - runtime.freeMemory()));
        System.out.println(ns + " " + seen + " " + sum);
    }

    /** Nanoseconds, packets, bytes. */
    private static final long[] SUMS = new long[3];

    private static void capture(Source source, Batch batch) {
        long begun = THREADS.getCurrentThreadCpuTime();
        long sum = 0;
        long seen = 0;
        while (source.next(batch)) {
            int size = batch.size();
            for (int i = 0; i < size; i++) {
                sum += UncheckedPackets.wireLength(batch, i);
            }
            seen += size;
            batch.release();
        }
        SUMS[0] += THREADS.getCurrentThreadCpuTime() - begun;
        SUMS[1] += seen;
        SUMS[2] += sum;
    }
}
