package weir;

import jdk.jfr.Category;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.EventType;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;

/** A batch in a flight recording: how long its thread waited for it, and what was in it. Made only while a recording asks for it. */
@Name("weir.Batch")
@Label("Batch")
@Category("weir")
@Description("A batch that a thread pulled; the duration is the wait for it")
@StackTrace(false)
final class BatchEvent extends Event {
    static final EventType TYPE = EventType.getEventType(BatchEvent.class);

    @Label("Packets")
    int packets;

    @Label("Passed")
    @Description("Packets that passed the filter and the rules")
    int passed;
}
