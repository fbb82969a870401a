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

    private static boolean has(int address) {
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

    private static long checked(Batch batch) {
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

    public static void main(String[] arguments) {
        String name = arguments[0];
        String file = arguments[1];
        int turns = Integer.parseInt(arguments[2]);
        long atLeast = Long.parseLong(arguments[3]);
        Options options = Options.DEFAULT.withBatches(4096).withWorkers(1);
        if (name.equals("capture")) {
            Batch batch = new Batch();
            for (int turn = 0; turn < turns; turn++) {
                try (Source source = Source.open(options, file)) {
                    long begun = THREADS.getCurrentThreadCpuTime();
                    capture(source, batch, begun);
                }
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
                        default -> throw new IllegalArgumentException(name);
                    };
                    seen += batch.size();
                }
            }
            System.out.println(THREADS.getCurrentThreadCpuTime() - begun + " " + seen + " " + sum);
        }
    }

    private static void capture(Source source, Batch batch, long begun) {
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
        System.out.println(THREADS.getCurrentThreadCpuTime() - begun + " " + seen + " " + sum);
    }
}
