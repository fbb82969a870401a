package weir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import weir.ffi.Native;

/** Health of the traffic of an {@link Measurement.Answer}. The page docs/reference/health.md has the rule of each figure. */
public final class Health {
    private Health() {}

    /**
     * Figures of TCP segments: of one end of a conversation, or of all.
     *
     * @param packets segments
     * @param payload bytes of payload
     * @param retransmitted segments sent again
     * @param retransmittedBytes bytes of payload sent again
     * @param fast retransmitted segments that duplicate ACKs asked for
     * @param spurious retransmitted segments that were acknowledged before
     * @param repeated segments whose bytes were seen before
     * @param outOfOrder segments out of order
     * @param duplicateAcks duplicate ACKs
     * @param zeroWindows windows of 0
     * @param resets segments with RST
     * @param gaps segments after a gap
     * @param untimed segments whose acknowledgement was not timed
     * @param rttCount acknowledgements that were timed
     * @param rttMinNanos shortest round trip, ns; -1 without one
     * @param rttMeanNanos mean round trip, ns; -1 without one
     * @param rttMaxNanos longest round trip, ns; -1 without one
     */
    public record TcpFigures(
        long packets, long payload, long retransmitted, long retransmittedBytes, long fast, long spurious, long repeated, long
        outOfOrder, long duplicateAcks, long zeroWindows, long resets, long gaps, long untimed, long rttCount, long rttMinNanos,
        long rttMeanNanos, long rttMaxNanos) {
        private static TcpFigures of(MemorySegment from) {
            return new TcpFigures(
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp_figures.packets),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp_figures.payload),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp_figures.retransmitted),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp_figures.retransmitted_bytes),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp_figures.fast),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp_figures.spurious),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp_figures.repeated),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp_figures.out_of_order),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp_figures.duplicate_acks),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp_figures.zero_windows),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp_figures.resets),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp_figures.gaps),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp_figures.untimed),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp_figures.rtt_count),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp_figures.rtt_min_ns),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp_figures.rtt_mean_ns),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp_figures.rtt_max_ns));
        }
    }

    /**
     * A TCP conversation.
     *
     * @param src address of the client; of the lower end if the begin was not seen
     * @param sport port of {@code src}
     * @param dst address of the other end
     * @param dport port of {@code dst}
     * @param firstNanos time of the first packet, ns since 1970
     * @param latestNanos time of the latest packet, ns since 1970
     * @param begun whether the begin was seen
     * @param handshakeNanos time of the handshake, ns; -1 if it is unknown
     * @param sent figures of the segments of {@code src}
     * @param received figures of the segments of {@code dst}
     */
    public record Conversation(
        String src, int sport, String dst, int dport, long firstNanos, long latestNanos, boolean begun, long handshakeNanos,
        TcpFigures sent, TcpFigures received) {}

    /**
     * Health of TCP.
     *
     * @param conversations number of conversations
     * @param midway conversations whose begin was not seen
     * @param capacity conversations for which there is room
     * @param evicted conversations that were displaced because the table was full; the sum has their figures
     * @param evictedRetransmitted the most that a displaced conversation had retransmitted
     * @param unjudged TCP packets that could not be judged, such as fragments
     * @param sum figures of all conversations
     * @param rows the conversations with the most troubles
     */
    public record Tcp(
        long conversations, long midway, long capacity, long evicted, long evictedRetransmitted, long unjudged,
        TcpFigures sum, List<Conversation> rows) {}

    /**
     * Figures of DNS transactions.
     *
     * @param name address of the server, or the name; {@code null} for all transactions
     * @param codes numbers of answers by response code: 0 no error, 2 server failure, 3 no such name
     * @param queries queries that began a transaction
     * @param retransmitted queries sent again
     * @param repeated answers after the first
     * @param unanswered queries without an answer
     * @param timeCount transactions that were timed
     * @param medianNanos median time, ns, within 7 %; -1 without one
     * @param meanNanos mean time, ns; -1 without one
     * @param maxNanos longest time, ns; -1 without one
     */
    public record DnsFigures(
        String name, List<Long> codes,
        long queries, long retransmitted, long repeated, long unanswered, long timeCount, long medianNanos, long meanNanos, long
        maxNanos) {
        private static DnsFigures of(MemorySegment from) {
            long count = from.get(ValueLayout.JAVA_INT, Native.weir_dns_figures.code_count);
            MemorySegment codes = from.get(ValueLayout.ADDRESS, Native.weir_dns_figures.codes).reinterpret(count * Long.BYTES);
            List<Long> list = new ArrayList<>();
            for (long i = 0; i < count; i++) {
                list.add(codes.getAtIndex(ValueLayout.JAVA_LONG, i));
            }
            return new DnsFigures(
                text(from, Native.weir_dns_figures.name),
                List.copyOf(list),
                from.get(ValueLayout.JAVA_LONG, Native.weir_dns_figures.queries),
                from.get(ValueLayout.JAVA_LONG, Native.weir_dns_figures.retransmitted),
                from.get(ValueLayout.JAVA_LONG, Native.weir_dns_figures.repeated),
                from.get(ValueLayout.JAVA_LONG, Native.weir_dns_figures.unanswered),
                from.get(ValueLayout.JAVA_LONG, Native.weir_dns_figures.time_count),
                from.get(ValueLayout.JAVA_LONG, Native.weir_dns_figures.median_ns),
                from.get(ValueLayout.JAVA_LONG, Native.weir_dns_figures.mean_ns),
                from.get(ValueLayout.JAVA_LONG, Native.weir_dns_figures.max_ns));
        }
    }

    /**
     * Health of DNS.
     *
     * @param unasked answers without a query
     * @param unread messages that could not be read
     * @param capacity names for which there is room
     * @param evictedQueries open queries that were displaced because the table was full
     * @param evictedNames names that were displaced
     * @param evictedServers servers that were displaced
     * @param sum figures of all transactions
     * @param servers servers with the most queries
     * @param slow names with the longest times
     * @param failing names with the most answers of failure
     * @param unanswered names with the most queries without an answer
     */
    public record Dns(
        long unasked, long unread, long capacity, long evictedQueries, long evictedNames, long evictedServers,
        DnsFigures sum, List<DnsFigures> servers, List<DnsFigures> slow, List<DnsFigures> failing, List<DnsFigures> unanswered) {}

    /** Reads an answer, which stays open. */
    static Measurement.Answer answer(long answer, boolean isSummary) throws Throwable {
        try (Arena arena = Arena.ofConfined()) {
            return new Measurement.Answer(isSummary, WeirException.peek(answer), tcp(answer, arena), dns(answer, arena), Finding.of(answer, arena));
        }
    }

    /** Whether a call has filled its structure. */
    static boolean is(int status) {
        if (status < 0) {
            throw WeirException.of(status, null);
        }
        return status == Native.WEIR_OK;
    }

    /** The text that a field leads to; {@code null} for NULL. */
    static String text(MemorySegment from, long field) {
        MemorySegment text = from.get(ValueLayout.ADDRESS, field);
        return text.address() == 0 ? null : text.reinterpret(Long.MAX_VALUE).getString(0);
    }

    private static Tcp tcp(long answer, Arena arena) throws Throwable {
        MemorySegment from = arena.allocate(Native.weir_tcp.LAYOUT);
        MemorySegment sum = arena.allocate(Native.weir_tcp_figures.LAYOUT);
        if (!is((int) Native.weir_answer_tcp.invokeExact(answer, from, sum))) {
            return null;
        }
        MemorySegment row = arena.allocate(Native.weir_tcp_conversation.LAYOUT);
        MemorySegment sent = arena.allocate(Native.weir_tcp_figures.LAYOUT);
        MemorySegment received = arena.allocate(Native.weir_tcp_figures.LAYOUT);
        List<Conversation> rows = new ArrayList<>();
        while (is((int) Native.weir_answer_conversation.invokeExact(answer, (long) rows.size(), row, sent, received))) {
            rows.add(new Conversation(
                text(row, Native.weir_tcp_conversation.src),
                row.get(ValueLayout.JAVA_INT, Native.weir_tcp_conversation.sport),
                text(row, Native.weir_tcp_conversation.dst),
                row.get(ValueLayout.JAVA_INT, Native.weir_tcp_conversation.dport),
                row.get(ValueLayout.JAVA_LONG, Native.weir_tcp_conversation.first_ns),
                row.get(ValueLayout.JAVA_LONG, Native.weir_tcp_conversation.latest_ns),
                row.get(ValueLayout.JAVA_INT, Native.weir_tcp_conversation.begun) == 1,
                row.get(ValueLayout.JAVA_LONG, Native.weir_tcp_conversation.handshake_ns),
                TcpFigures.of(sent),
                TcpFigures.of(received)));
        }
        return new Tcp(
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp.conversations),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp.midway),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp.capacity),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp.evicted),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp.evicted_retransmitted),
                from.get(ValueLayout.JAVA_LONG, Native.weir_tcp.unjudged),
                TcpFigures.of(sum),
                List.copyOf(rows));
    }

    private static Dns dns(long answer, Arena arena) throws Throwable {
        MemorySegment from = arena.allocate(Native.weir_dns.LAYOUT);
        MemorySegment sum = arena.allocate(Native.weir_dns_figures.LAYOUT);
        if (!is((int) Native.weir_answer_dns.invokeExact(answer, from, sum))) {
            return null;
        }
        return new Dns(
                from.get(ValueLayout.JAVA_LONG, Native.weir_dns.unasked),
                from.get(ValueLayout.JAVA_LONG, Native.weir_dns.unread),
                from.get(ValueLayout.JAVA_LONG, Native.weir_dns.capacity),
                from.get(ValueLayout.JAVA_LONG, Native.weir_dns.evicted_queries),
                from.get(ValueLayout.JAVA_LONG, Native.weir_dns.evicted_names),
                from.get(ValueLayout.JAVA_LONG, Native.weir_dns.evicted_servers),
                DnsFigures.of(sum),
                rows(answer, Native.WEIR_DNS_SERVERS, arena),
                rows(answer, Native.WEIR_DNS_SLOW, arena),
                rows(answer, Native.WEIR_DNS_FAILING, arena),
                rows(answer, Native.WEIR_DNS_UNANSWERED, arena));
    }

    private static List<DnsFigures> rows(long answer, int list, Arena arena) throws Throwable {
        MemorySegment row = arena.allocate(Native.weir_dns_figures.LAYOUT);
        List<DnsFigures> rows = new ArrayList<>();
        while (is((int) Native.weir_answer_dns_row.invokeExact(answer, list, (long) rows.size(), row))) {
            rows.add(DnsFigures.of(row));
        }
        return List.copyOf(rows);
    }
}
