import java.lang.management.ManagementFactory;
import weir.Batch;
import weir.Options;
import weir.Packet;
import weir.Source;

/** Packets of UDP and TCP by destination port, with weir: CASE FILE TURNS PACKETS. Prints as {@link Language}, the process's time. */
public final class Ports {
    private Ports() {}

    /** Counts the packets of a file once. */
    interface Count {
        long run(String file, long[] ports) throws Exception;
    }

    /** Returns the processor time of all threads of this process, ns. */
    static long processNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    /**
     * Counts until there are so many packets, and prints a line for each turn: nanoseconds, packets, and a checksum of the counts of one
     * pass over the file.
     */
    static void turns(String file, int turns, long atLeast, Count count) throws Exception {
        for (int turn = 0; turn < turns; turn++) {
            long[] ports = new long[65536];
            long begun = processNanos();
            long seen = count.run(file, ports);
            long sum = 0;
            for (int port = 0; port < ports.length; port++) {
                sum = sum * 31 + ports[port];
            }
            while (seen < atLeast) {
                seen += count.run(file, ports);
            }
            System.out.println(processNanos() - begun + " " + seen + " " + (sum & Long.MAX_VALUE));
        }
    }

    public static void main(String[] arguments) throws Exception {
        Batch batch = new Batch();
        turns(arguments[1], Integer.parseInt(arguments[2]), Long.parseLong(arguments[3]), (file, ports) -> {
            long seen = 0;
            try (Source source = Source.open(Options.DEFAULT.withWorkers(1), file)) {
                while (source.next(batch)) {
                    seen += count(batch, ports);
                    batch.release();
                }
            }
            return seen;
        });
    }

    private static int count(Batch batch, long[] ports) {
        Packet packet = batch.packet();
        int size = batch.size();
        for (int i = 0; i < size; i++) {
            if (packet.at(i).hasPorts()) {
                ports[packet.destinationPort()]++;
            }
        }
        return size;
    }
}
