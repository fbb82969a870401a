import java.io.IOException;
import sun.misc.Signal;
import weir.Batch;
import weir.Counts;
import weir.Options;
import weir.Packet;
import weir.Source;

/**
 * A receiver for {@code weir-bench capture}: SOURCE FILE RING. Warms up on a file, opens the source, prints {@code ready}, counts UDP packets
 * by checked accesses until it is interrupted, and prints how many there were. All output is on standard error, as that of weir.
 */
public final class Live {
    /** Packets of the warm-up. */
    private static final long WARM = 20_000_000;

    private Live() {}

    private static long udp(Batch batch) {
        long found = 0;
        Packet packet = batch.packet();
        int size = batch.size();
        for (int i = 0; i < size; i++) {
            if (packet.at(i).isUdp()) {
                found++;
            }
        }
        return found;
    }

    public static void main(String[] arguments) throws IOException {
        try (Batch batch = new Batch()) {
            for (long warmed = 0; warmed < WARM;) {
                try (Source source = Source.open(Options.DEFAULT.withWorkers(1), arguments[1])) {
                    while (source.next(batch)) {
                        udp(batch);
                        warmed += batch.size();
                        batch.release();
                    }
                }
            }
            try (Source source = Source.open(Options.DEFAULT.withRing(Long.parseLong(arguments[2])), arguments[0])) {
                Signal.handle(new Signal("INT"), signal -> source.stop());
                System.err.println("ready");
                long found = 0;
                long seen = 0;
                while (source.next(batch)) {
                    found += udp(batch);
                    seen += batch.size();
                    batch.release();
                }
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
