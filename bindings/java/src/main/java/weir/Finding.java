package weir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import weir.ffi.Native;

/**
 * A finding that began or ended.
 *
 * @param number number of the finding; its begin and its end have the same
 * @param kind {@code scan}, {@code flood}, {@code storm}, {@code slow_dns}, {@code loss} or {@code new_host}
 * @param state {@code begin}; {@code end}; {@code open}: it goes on at the end of the measurement
 * @param host address that it is about; {@code null}: the whole link
 * @param beginNanos begin of the first window that met the rule, ns since 1970
 * @param lastNanos end of the last window that met it, ns since 1970
 * @param figure figure of the last window, in {@code unit}
 * @param most largest figure
 * @param unit unit of both figures, in words
 * @param row counts of the window with the largest figure, in words
 */
public record Finding(
    long number, String kind, String state, String host, long beginNanos, long lastNanos, double figure, double most, String unit, String row) {
    /** The findings of an answer. */
    static List<Finding> of(long answer, Arena arena) throws Throwable {
        List<Finding> all = new ArrayList<>();
        MemorySegment from = arena.allocate(Native.weir_finding.LAYOUT);
        while (Health.is((int) Native.weir_answer_finding.invokeExact(answer, (long) all.size(), from))) {
            all.add(new Finding(
                from.get(ValueLayout.JAVA_LONG, Native.weir_finding.number),
                Health.text(from, Native.weir_finding.kind),
                Health.text(from, Native.weir_finding.state),
                Health.text(from, Native.weir_finding.host),
                from.get(ValueLayout.JAVA_LONG, Native.weir_finding.begin_ns),
                from.get(ValueLayout.JAVA_LONG, Native.weir_finding.last_ns),
                from.get(ValueLayout.JAVA_DOUBLE, Native.weir_finding.figure),
                from.get(ValueLayout.JAVA_DOUBLE, Native.weir_finding.most),
                Health.text(from, Native.weir_finding.unit),
                Health.text(from, Native.weir_finding.row)));
        }
        return List.copyOf(all);
    }
}
