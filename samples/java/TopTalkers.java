import java.time.Duration;
import weir.MeasureOptions;
import weir.Measurement;
import weir.Options;
import weir.WeirException;

/** Prints the largest sources and ports of each second, and of all, as lines of JSON: TopTalkers SOURCE [FILTER] */
public final class TopTalkers {
    public static void main(String[] arguments) {
        if (arguments.length < 1) {
            System.err.println("TopTalkers SOURCE [FILTER]");
            System.exit(2);
        }
        Options options = Options.DEFAULT.withFilter(arguments.length > 1 ? arguments[1] : "");
        MeasureOptions by = new MeasureOptions().key("src").key("dport").window(Duration.ofSeconds(1));
        try (Measurement measurement = Measurement.open(options, by, arguments[0])) {
            for (Measurement.Answer answer; (answer = measurement.next()) != null; ) {
                System.out.println(answer.json());
            }
        } catch (WeirException e) {
            // What was good before a failure is in the answers.
            System.err.println("weir: " + e.getMessage());
            System.exit(e.status() == weir.ffi.Native.WEIR_REFUSED ? 2 : 1);
        }
    }

    private TopTalkers() {}
}
