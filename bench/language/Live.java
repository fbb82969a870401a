import java.io.IOException;
import java.util.Collections;
import sun.misc.Signal;
import weir.Batch;
import weir.Counts;
import weir.Options;
import weir.Packet;
import weir.Source;

/**
 * A receiver for {@code weir-bench capture}: SOURCE FILE RING. Warms up on a file of a few hundred packets, which it reads until the calls of a
 * live capture are compiled. Then it opens the source, prints {@code ready}, counts UDP packets by checked accesses until it is interrupted,
 * and prints how many there were. All output is on standard error, as that of weir.
 */
public final class Live {
    /** Openings of a source in the warm-up: as many calls as the JVM wants before it compiles a loop for good. */
    private static final int OPENINGS = 1000;

    /** Readings of the file for each opening: each one is a batch. */
    private static final int READINGS = 60;

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

    private static void count(Source source, Batch batch) throws IOException {
        seen = 0;
        found = 0;
        while (source.next(batch)) {
            found += udp(batch);
            seen += batch.size();
            batch.release();
        }
    }

    public static void main(String[] arguments) throws IOException {
        // What the handler makes the JVM load and compile, it does before the capture too.
        Signal.handle(new Signal("INT"), signal -> capture.stop());
        try (Batch batch = new Batch()) {
            String[] files = Collections.nCopies(READINGS, arguments[1]).toArray(String[]::new);
            for (int i = 0; i < OPENINGS; i++) {
                try (Source source = Source.open(Options.DEFAULT.withWorkers(1), files)) {
                    count(source, batch);
                }
            }
            try (Source source = Source.open(Options.DEFAULT.withRing(Long.parseLong(arguments[2])), arguments[0])) {
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
