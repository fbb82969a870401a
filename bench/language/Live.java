import sun.misc.Signal;
import weir.Batch;
import weir.Counts;
import weir.Options;
import weir.Packet;
import weir.Source;

/**
 * A receiver for {@code weir-bench capture}: SOURCE RING. Warms up, opens the source, prints {@code ready}, counts UDP packets by checked
 * accesses until it is interrupted, and prints how many there were. All output is on standard error, as that of weir.
 */
public final class Live {
    /** Packets of the last source, and those of UDP among them. */
    private static long seen;

    private static long found;

    /** The capture, for the handler of signals. */
    private static volatile Source capture;

    private Live() {}

    private static int udp(Batch batch) {
        int udp = 0;
        Packet packet = batch.packet();
        int size = batch.size();
        for (int i = 0; i < size; i++) {
            if (packet.at(i).isUdp()) {
                udp++;
            }
        }
        return udp;
    }

    private static void count(Source source, Batch batch) {
        seen = 0;
        found = 0;
        while (source.next(batch)) {
            found += udp(batch);
            seen += batch.size();
            batch.release();
        }
    }

    public static void main(String[] arguments) {
        // What the handler makes the JVM load and compile, it does before the capture too.
        Signal.handle(new Signal("INT"), signal -> capture.stop());
        WarmUp.run(Options.DEFAULT.withWorkers(1), Live::count);
        try (Batch batch = new Batch()) {
            try (Source source = Source.open(Options.DEFAULT.withRing(Long.parseLong(arguments[1])), arguments[0])) {
                capture = source;
                System.err.println("ready");
                count(source, batch);
                Counts counts = source.end();
                long dropped = counts.droppedSource() + counts.droppedOutput();
                if (counts.received() != counts.passed() + counts.filtered() + counts.denied() + dropped
                    || counts.passed() != seen || found != seen || !counts.isFinal()) {
                    System.err.println(found + " of UDP, " + seen + " seen: " + counts);
                    System.exit(1);
                }
                System.err.println(counts.received() + " received, " + found + " matched, " + dropped + " dropped");
            }
        }
    }
}
