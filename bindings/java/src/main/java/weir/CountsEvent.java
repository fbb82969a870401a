package weir;

import jdk.jfr.Category;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.Period;
import jdk.jfr.StackTrace;

/** Counts of a source in a flight recording, once a second and at its end: {@link Counts}. */
@Name("weir.Counts")
@Label("Counts of a source")
@Category("weir")
@Period("1 s")
@StackTrace(false)
final class CountsEvent extends Event {
    @Label("Source")
    String source;

    @Label("Received")
    long received;

    @Label("Passed")
    long passed;

    @Label("Filtered")
    long filtered;

    @Label("Denied")
    long denied;

    @Label("Dropped at the source")
    @Description("For want of room: batches were held for too long, or pulled too slowly")
    long droppedSource;

    @Label("Dropped at the end")
    long droppedOutput;

    @Label("Batches held")
    long held;

    @Label("Starved")
    @Description("Times that reading stopped because too many batches were out")
    long starved;

    void commit(String source, Counts counts) {
        this.source = source;
        received = counts.received();
        passed = counts.passed();
        filtered = counts.filtered();
        denied = counts.denied();
        droppedSource = counts.droppedSource();
        droppedOutput = counts.droppedOutput();
        held = counts.held();
        starved = counts.starved();
        commit();
    }
}
