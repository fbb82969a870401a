import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayDeque;
import weir.Batch;
import weir.Options;
import weir.Sink;
import weir.Source;
import weir.Verdicts;
import weir.WeirException;

/**
 * Writes the packets around each that matches: CaptureOnTrigger SOURCE TRIGGER OUT
 *
 * <p>Of each packet that matches the expression TRIGGER, the 100 before it and the 100 behind it are written too. Batches are held until
 * no later packet can ask for theirs.
 */
public final class CaptureOnTrigger {
    private static final int AROUND = 100;
    private static final int MOST_HELD = 4096;

    /** A batch with the number of its first packet. */
    private record Held(Batch batch, long first, Verdicts chosen) {
        /** Chooses packets from number {@code from} up to {@code to}, as far as they are here. */
        void choose(long from, long to) {
            for (long at = Math.max(from, first); at < first + batch.size() && at <= to; at++) {
                chosen.pass((int) (at - first));
            }
        }
    }

    private final ArrayDeque<Held> held = new ArrayDeque<>();

    /** Writes and releases the batches that end before packet {@code number}. */
    private void writeBefore(long number, Sink sink) {
        while (!held.isEmpty() && held.peek().first() + held.peek().batch().size() <= number) {
            Held first = held.poll();
            sink.send(first.batch(), first.chosen());
            first.batch().release();
        }
    }

    private void run(String name, String trigger, String out) {
        long received = 0;
        long triggers = 0;
        // Packets before this one are chosen as they come.
        long until = 0;
        Options options = Options.DEFAULT.withSplits(trigger).withBatches(MOST_HELD);
        try (Source source = Source.open(options, name); Sink sink = Sink.open(out)) {
            for (Batch batch = new Batch(); source.next(batch); batch = new Batch()) {
                Held now = new Held(batch, received, new Verdicts());
                now.chosen().begin(batch);
                held.add(now);
                received += batch.size();
                now.choose(now.first(), until - 1);
                MemorySegment matches = batch.split(0);
                for (int i = 0; i < batch.size(); i++) {
                    if ((matches.get(ValueLayout.JAVA_LONG, (i >> 6) * 8L) >>> i & 1) == 1) {
                        long at = now.first() + i;
                        triggers++;
                        held.forEach(one -> one.choose(at - AROUND, at + AROUND));
                        until = at + AROUND + 1;
                    }
                }
                writeBefore(received - AROUND, sink);
            }
            writeBefore(received, sink);
            System.out.println(received + " received, " + triggers + " triggers, " + sink.end().written() + " written");
        }
    }

    public static void main(String[] arguments) {
        if (arguments.length != 3) {
            System.err.println("CaptureOnTrigger SOURCE TRIGGER OUT");
            System.exit(2);
        }
        try {
            new CaptureOnTrigger().run(arguments[0], arguments[1], arguments[2]);
        } catch (WeirException e) {
            System.err.println("weir: " + e.getMessage());
            System.exit(e.status() == weir.ffi.Native.WEIR_REFUSED ? 2 : 1);
        }
    }
}
