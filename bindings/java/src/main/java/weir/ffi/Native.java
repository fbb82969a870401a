// Made from include/weir.h: WEIR_WRITE=1 cargo test -p weir-ffi --test languages. Never edited.
package weir.ffi;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_DOUBLE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.StructLayout;
import java.lang.invoke.MethodHandle;

/** Functions, structures and constants of the C library, by their names there. */
public final class Native {
    private Native() {}

    /** WEIR_ABI of weir.h. */
    public static final int WEIR_ABI = 1;
    /** WEIR_DNS_SERVERS of weir.h. */
    public static final int WEIR_DNS_SERVERS = 0;
    /** WEIR_DNS_SLOW of weir.h. */
    public static final int WEIR_DNS_SLOW = 1;
    /** WEIR_DNS_FAILING of weir.h. */
    public static final int WEIR_DNS_FAILING = 2;
    /** WEIR_DNS_UNANSWERED of weir.h. */
    public static final int WEIR_DNS_UNANSWERED = 3;
    /** WEIR_MIXED of weir.h. */
    public static final int WEIR_MIXED = 65536;
    /** WEIR_TIME of weir.h. */
    public static final int WEIR_TIME = 0;
    /** WEIR_WIRE_LEN of weir.h. */
    public static final int WEIR_WIRE_LEN = 1;
    /** WEIR_CAPTURED of weir.h. */
    public static final int WEIR_CAPTURED = 2;
    /** WEIR_INTERFACE of weir.h. */
    public static final int WEIR_INTERFACE = 3;
    /** WEIR_IP_VERSION of weir.h. */
    public static final int WEIR_IP_VERSION = 4;
    /** WEIR_SRC4 of weir.h. */
    public static final int WEIR_SRC4 = 5;
    /** WEIR_DST4 of weir.h. */
    public static final int WEIR_DST4 = 6;
    /** WEIR_SRC of weir.h. */
    public static final int WEIR_SRC = 7;
    /** WEIR_DST of weir.h. */
    public static final int WEIR_DST = 8;
    /** WEIR_PROTOCOL of weir.h. */
    public static final int WEIR_PROTOCOL = 9;
    /** WEIR_SRC_PORT of weir.h. */
    public static final int WEIR_SRC_PORT = 10;
    /** WEIR_DST_PORT of weir.h. */
    public static final int WEIR_DST_PORT = 11;
    /** WEIR_TCP_FLAGS of weir.h. */
    public static final int WEIR_TCP_FLAGS = 12;
    /** WEIR_VLAN of weir.h. */
    public static final int WEIR_VLAN = 13;
    /** WEIR_NETWORK_OFFSET of weir.h. */
    public static final int WEIR_NETWORK_OFFSET = 14;
    /** WEIR_TRANSPORT_OFFSET of weir.h. */
    public static final int WEIR_TRANSPORT_OFFSET = 15;
    /** WEIR_PAYLOAD_OFFSET of weir.h. */
    public static final int WEIR_PAYLOAD_OFFSET = 16;
    /** WEIR_BY_BYTES of weir.h. */
    public static final int WEIR_BY_BYTES = 1;
    /** WEIR_NO_MERGE of weir.h. */
    public static final int WEIR_NO_MERGE = 2;
    /** WEIR_SHARED of weir.h. */
    public static final int WEIR_SHARED = 4;
    /** WEIR_SEED of weir.h. */
    public static final int WEIR_SEED = 8;
    /** WEIR_BY_PEERS of weir.h. */
    public static final int WEIR_BY_PEERS = 16;
    /** WEIR_BY_PORTS of weir.h. */
    public static final int WEIR_BY_PORTS = 32;
    /** WEIR_BY_CONTACTS of weir.h. */
    public static final int WEIR_BY_CONTACTS = 64;
    /** WEIR_FINDINGS of weir.h. */
    public static final int WEIR_FINDINGS = 128;
    /** WEIR_HEALTH_TCP of weir.h. */
    public static final int WEIR_HEALTH_TCP = 256;
    /** WEIR_HEALTH_DNS of weir.h. */
    public static final int WEIR_HEALTH_DNS = 512;
    /** WEIR_HEALTH_MTU of weir.h. */
    public static final int WEIR_HEALTH_MTU = 1024;
    /** WEIR_HEAVY of weir.h. */
    public static final int WEIR_HEAVY = 0;
    /** WEIR_EXACT of weir.h. */
    public static final int WEIR_EXACT = 1;
    /** WEIR_CMS of weir.h. */
    public static final int WEIR_CMS = 2;
    /** WEIR_CMS_CONSERVATIVE of weir.h. */
    public static final int WEIR_CMS_CONSERVATIVE = 3;
    /** WEIR_SHT of weir.h. */
    public static final int WEIR_SHT = 4;
    /** WEIR_MV of weir.h. */
    public static final int WEIR_MV = 5;
    /** WEIR_RS of weir.h. */
    public static final int WEIR_RS = 6;
    /** WEIR_RS_SET of weir.h. */
    public static final int WEIR_RS_SET = 7;
    /** WEIR_AUTO of weir.h. */
    public static final int WEIR_AUTO = 0;
    /** WEIR_RSS of weir.h. */
    public static final int WEIR_RSS = 1;
    /** WEIR_ASYNC of weir.h. */
    public static final int WEIR_ASYNC = 2;
    /** WEIR_SYNC of weir.h. */
    public static final int WEIR_SYNC = 3;
    /** WEIR_MERGE of weir.h. */
    public static final int WEIR_MERGE = 1;
    /** WEIR_SORT of weir.h. */
    public static final int WEIR_SORT = 2;
    /** WEIR_INVERT of weir.h. */
    public static final int WEIR_INVERT = 4;
    /** WEIR_INNER of weir.h. */
    public static final int WEIR_INNER = 8;
    /** WEIR_RESOLVE of weir.h. */
    public static final int WEIR_RESOLVE = 16;
    /** WEIR_NO_PROMISCUOUS of weir.h. */
    public static final int WEIR_NO_PROMISCUOUS = 32;
    /** WEIR_NO_KERNEL_FILTER of weir.h. */
    public static final int WEIR_NO_KERNEL_FILTER = 64;
    /** WEIR_IN of weir.h. */
    public static final int WEIR_IN = 128;
    /** WEIR_OUT of weir.h. */
    public static final int WEIR_OUT = 256;
    /** WEIR_WAIT of weir.h. */
    public static final int WEIR_WAIT = 512;
    /** WEIR_BUSY_POLL of weir.h. */
    public static final int WEIR_BUSY_POLL = 1024;
    /** WEIR_OK of weir.h. */
    public static final int WEIR_OK = 0;
    /** WEIR_END of weir.h. */
    public static final int WEIR_END = 1;
    /** WEIR_NOTHING of weir.h. */
    public static final int WEIR_NOTHING = 2;
    /** WEIR_REFUSED of weir.h. */
    public static final int WEIR_REFUSED = -1;
    /** WEIR_FAILED of weir.h. */
    public static final int WEIR_FAILED = -2;
    /** WEIR_CLOSED of weir.h. */
    public static final int WEIR_CLOSED = -3;
    /** WEIR_BUSY of weir.h. */
    public static final int WEIR_BUSY = -4;
    /** WEIR_FORKED of weir.h. */
    public static final int WEIR_FORKED = -5;
    /** WEIR_NULL of weir.h. */
    public static final int WEIR_NULL = -6;
    /** WEIR_SIZE of weir.h. */
    public static final int WEIR_SIZE = -7;
    /** WEIR_FULL of weir.h. */
    public static final int WEIR_FULL = -8;
    /** WEIR_BUG of weir.h. */
    public static final int WEIR_BUG = -9;

    /** Structure weir_tcp of weir.h. */
    public static final class weir_tcp {
        private weir_tcp() {}

        /** Its layout. */
        public static final StructLayout LAYOUT = MemoryLayout.structLayout(
            JAVA_LONG.withName("conversations"),
            JAVA_LONG.withName("midway"),
            JAVA_LONG.withName("capacity"),
            JAVA_LONG.withName("evicted"),
            JAVA_LONG.withName("evicted_retransmitted"),
            JAVA_LONG.withName("unjudged"),
            JAVA_LONG.withName("rows"));
        /** Offset of conversations, bytes. */
        public static final long conversations = 0;
        /** Offset of midway, bytes. */
        public static final long midway = 8;
        /** Offset of capacity, bytes. */
        public static final long capacity = 16;
        /** Offset of evicted, bytes. */
        public static final long evicted = 24;
        /** Offset of evicted_retransmitted, bytes. */
        public static final long evicted_retransmitted = 32;
        /** Offset of unjudged, bytes. */
        public static final long unjudged = 40;
        /** Offset of rows, bytes. */
        public static final long rows = 48;

        static {
            Library.check("weir_tcp", LAYOUT, 56, 8, new String[] {"conversations", "midway", "capacity", "evicted", "evicted_retransmitted", "unjudged", "rows"}, new long[] {0, 8, 16, 24, 32, 40, 48});
        }
    }

    /** Structure weir_tcp_figures of weir.h. */
    public static final class weir_tcp_figures {
        private weir_tcp_figures() {}

        /** Its layout. */
        public static final StructLayout LAYOUT = MemoryLayout.structLayout(
            JAVA_LONG.withName("packets"),
            JAVA_LONG.withName("payload"),
            JAVA_LONG.withName("retransmitted"),
            JAVA_LONG.withName("retransmitted_bytes"),
            JAVA_LONG.withName("fast"),
            JAVA_LONG.withName("spurious"),
            JAVA_LONG.withName("repeated"),
            JAVA_LONG.withName("out_of_order"),
            JAVA_LONG.withName("duplicate_acks"),
            JAVA_LONG.withName("zero_windows"),
            JAVA_LONG.withName("resets"),
            JAVA_LONG.withName("gaps"),
            JAVA_LONG.withName("untimed"),
            JAVA_LONG.withName("rtt_count"),
            JAVA_LONG.withName("rtt_min_ns"),
            JAVA_LONG.withName("rtt_mean_ns"),
            JAVA_LONG.withName("rtt_max_ns"));
        /** Offset of packets, bytes. */
        public static final long packets = 0;
        /** Offset of payload, bytes. */
        public static final long payload = 8;
        /** Offset of retransmitted, bytes. */
        public static final long retransmitted = 16;
        /** Offset of retransmitted_bytes, bytes. */
        public static final long retransmitted_bytes = 24;
        /** Offset of fast, bytes. */
        public static final long fast = 32;
        /** Offset of spurious, bytes. */
        public static final long spurious = 40;
        /** Offset of repeated, bytes. */
        public static final long repeated = 48;
        /** Offset of out_of_order, bytes. */
        public static final long out_of_order = 56;
        /** Offset of duplicate_acks, bytes. */
        public static final long duplicate_acks = 64;
        /** Offset of zero_windows, bytes. */
        public static final long zero_windows = 72;
        /** Offset of resets, bytes. */
        public static final long resets = 80;
        /** Offset of gaps, bytes. */
        public static final long gaps = 88;
        /** Offset of untimed, bytes. */
        public static final long untimed = 96;
        /** Offset of rtt_count, bytes. */
        public static final long rtt_count = 104;
        /** Offset of rtt_min_ns, bytes. */
        public static final long rtt_min_ns = 112;
        /** Offset of rtt_mean_ns, bytes. */
        public static final long rtt_mean_ns = 120;
        /** Offset of rtt_max_ns, bytes. */
        public static final long rtt_max_ns = 128;

        static {
            Library.check("weir_tcp_figures", LAYOUT, 136, 8, new String[] {"packets", "payload", "retransmitted", "retransmitted_bytes", "fast", "spurious", "repeated", "out_of_order", "duplicate_acks", "zero_windows", "resets", "gaps", "untimed", "rtt_count", "rtt_min_ns", "rtt_mean_ns", "rtt_max_ns"}, new long[] {0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128});
        }
    }

    /** Structure weir_tcp_conversation of weir.h. */
    public static final class weir_tcp_conversation {
        private weir_tcp_conversation() {}

        /** Its layout. */
        public static final StructLayout LAYOUT = MemoryLayout.structLayout(
            ADDRESS.withName("src"),
            ADDRESS.withName("dst"),
            JAVA_INT.withName("sport"),
            JAVA_INT.withName("dport"),
            JAVA_LONG.withName("first_ns"),
            JAVA_LONG.withName("latest_ns"),
            JAVA_LONG.withName("handshake_ns"),
            JAVA_INT.withName("begun"),
            JAVA_INT.withName("reserved"));
        /** Offset of src, bytes. */
        public static final long src = 0;
        /** Offset of dst, bytes. */
        public static final long dst = 8;
        /** Offset of sport, bytes. */
        public static final long sport = 16;
        /** Offset of dport, bytes. */
        public static final long dport = 20;
        /** Offset of first_ns, bytes. */
        public static final long first_ns = 24;
        /** Offset of latest_ns, bytes. */
        public static final long latest_ns = 32;
        /** Offset of handshake_ns, bytes. */
        public static final long handshake_ns = 40;
        /** Offset of begun, bytes. */
        public static final long begun = 48;
        /** Offset of reserved, bytes. */
        public static final long reserved = 52;

        static {
            Library.check("weir_tcp_conversation", LAYOUT, 56, 8, new String[] {"src", "dst", "sport", "dport", "first_ns", "latest_ns", "handshake_ns", "begun", "reserved"}, new long[] {0, 8, 16, 20, 24, 32, 40, 48, 52});
        }
    }

    /** Structure weir_dns of weir.h. */
    public static final class weir_dns {
        private weir_dns() {}

        /** Its layout. */
        public static final StructLayout LAYOUT = MemoryLayout.structLayout(
            JAVA_LONG.withName("unasked"),
            JAVA_LONG.withName("unread"),
            JAVA_LONG.withName("capacity"),
            JAVA_LONG.withName("evicted_queries"),
            JAVA_LONG.withName("evicted_names"),
            JAVA_LONG.withName("evicted_servers"),
            JAVA_LONG.withName("servers"),
            JAVA_LONG.withName("slow"),
            JAVA_LONG.withName("failing"),
            JAVA_LONG.withName("unanswered"));
        /** Offset of unasked, bytes. */
        public static final long unasked = 0;
        /** Offset of unread, bytes. */
        public static final long unread = 8;
        /** Offset of capacity, bytes. */
        public static final long capacity = 16;
        /** Offset of evicted_queries, bytes. */
        public static final long evicted_queries = 24;
        /** Offset of evicted_names, bytes. */
        public static final long evicted_names = 32;
        /** Offset of evicted_servers, bytes. */
        public static final long evicted_servers = 40;
        /** Offset of servers, bytes. */
        public static final long servers = 48;
        /** Offset of slow, bytes. */
        public static final long slow = 56;
        /** Offset of failing, bytes. */
        public static final long failing = 64;
        /** Offset of unanswered, bytes. */
        public static final long unanswered = 72;

        static {
            Library.check("weir_dns", LAYOUT, 80, 8, new String[] {"unasked", "unread", "capacity", "evicted_queries", "evicted_names", "evicted_servers", "servers", "slow", "failing", "unanswered"}, new long[] {0, 8, 16, 24, 32, 40, 48, 56, 64, 72});
        }
    }

    /** Structure weir_dns_figures of weir.h. */
    public static final class weir_dns_figures {
        private weir_dns_figures() {}

        /** Its layout. */
        public static final StructLayout LAYOUT = MemoryLayout.structLayout(
            ADDRESS.withName("name"),
            ADDRESS.withName("codes"),
            JAVA_INT.withName("code_count"),
            JAVA_INT.withName("reserved"),
            JAVA_LONG.withName("queries"),
            JAVA_LONG.withName("retransmitted"),
            JAVA_LONG.withName("repeated"),
            JAVA_LONG.withName("unanswered"),
            JAVA_LONG.withName("time_count"),
            JAVA_LONG.withName("median_ns"),
            JAVA_LONG.withName("mean_ns"),
            JAVA_LONG.withName("max_ns"));
        /** Offset of name, bytes. */
        public static final long name = 0;
        /** Offset of codes, bytes. */
        public static final long codes = 8;
        /** Offset of code_count, bytes. */
        public static final long code_count = 16;
        /** Offset of reserved, bytes. */
        public static final long reserved = 20;
        /** Offset of queries, bytes. */
        public static final long queries = 24;
        /** Offset of retransmitted, bytes. */
        public static final long retransmitted = 32;
        /** Offset of repeated, bytes. */
        public static final long repeated = 40;
        /** Offset of unanswered, bytes. */
        public static final long unanswered = 48;
        /** Offset of time_count, bytes. */
        public static final long time_count = 56;
        /** Offset of median_ns, bytes. */
        public static final long median_ns = 64;
        /** Offset of mean_ns, bytes. */
        public static final long mean_ns = 72;
        /** Offset of max_ns, bytes. */
        public static final long max_ns = 80;

        static {
            Library.check("weir_dns_figures", LAYOUT, 88, 8, new String[] {"name", "codes", "code_count", "reserved", "queries", "retransmitted", "repeated", "unanswered", "time_count", "median_ns", "mean_ns", "max_ns"}, new long[] {0, 8, 16, 20, 24, 32, 40, 48, 56, 64, 72, 80});
        }
    }

    /** Structure weir_finding of weir.h. */
    public static final class weir_finding {
        private weir_finding() {}

        /** Its layout. */
        public static final StructLayout LAYOUT = MemoryLayout.structLayout(
            JAVA_LONG.withName("number"),
            ADDRESS.withName("kind"),
            ADDRESS.withName("state"),
            ADDRESS.withName("host"),
            JAVA_LONG.withName("begin_ns"),
            JAVA_LONG.withName("last_ns"),
            JAVA_DOUBLE.withName("figure"),
            JAVA_DOUBLE.withName("most"),
            ADDRESS.withName("unit"),
            ADDRESS.withName("row"));
        /** Offset of number, bytes. */
        public static final long number = 0;
        /** Offset of kind, bytes. */
        public static final long kind = 8;
        /** Offset of state, bytes. */
        public static final long state = 16;
        /** Offset of host, bytes. */
        public static final long host = 24;
        /** Offset of begin_ns, bytes. */
        public static final long begin_ns = 32;
        /** Offset of last_ns, bytes. */
        public static final long last_ns = 40;
        /** Offset of figure, bytes. */
        public static final long figure = 48;
        /** Offset of most, bytes. */
        public static final long most = 56;
        /** Offset of unit, bytes. */
        public static final long unit = 64;
        /** Offset of row, bytes. */
        public static final long row = 72;

        static {
            Library.check("weir_finding", LAYOUT, 80, 8, new String[] {"number", "kind", "state", "host", "begin_ns", "last_ns", "figure", "most", "unit", "row"}, new long[] {0, 8, 16, 24, 32, 40, 48, 56, 64, 72});
        }
    }

    /** Structure weir_column of weir.h. */
    public static final class weir_column {
        private weir_column() {}

        /** Its layout. */
        public static final StructLayout LAYOUT = MemoryLayout.structLayout(
            JAVA_INT.withName("field"),
            JAVA_INT.withName("capacity"),
            ADDRESS.withName("values"));
        /** Offset of field, bytes. */
        public static final long field = 0;
        /** Offset of capacity, bytes. */
        public static final long capacity = 4;
        /** Offset of values, bytes. */
        public static final long values = 8;

        static {
            Library.check("weir_column", LAYOUT, 16, 8, new String[] {"field", "capacity", "values"}, new long[] {0, 4, 8});
        }
    }

    /** Structure weir_options of weir.h. */
    public static final class weir_options {
        private weir_options() {}

        /** Its layout. */
        public static final StructLayout LAYOUT = MemoryLayout.structLayout(
            JAVA_INT.withName("size"),
            JAVA_INT.withName("flags"),
            ADDRESS.withName("filter"),
            ADDRESS.withName("splits"),
            JAVA_INT.withName("split_count"),
            JAVA_INT.withName("workers"),
            JAVA_LONG.withName("limit"),
            JAVA_LONG.withName("ring"),
            JAVA_LONG.withName("latency_ns"),
            JAVA_INT.withName("batches"),
            JAVA_INT.withName("connections"),
            JAVA_LONG.withName("from_ns"),
            JAVA_LONG.withName("to_ns"),
            ADDRESS.withName("rules"),
            ADDRESS.withName("yes_take"),
            ADDRESS.withName("sets"),
            JAVA_INT.withName("set_count"),
            JAVA_INT.withName("dedup"),
            JAVA_LONG.withName("dedup_ns"));
        /** Offset of size, bytes. */
        public static final long size = 0;
        /** Offset of flags, bytes. */
        public static final long flags = 4;
        /** Offset of filter, bytes. */
        public static final long filter = 8;
        /** Offset of splits, bytes. */
        public static final long splits = 16;
        /** Offset of split_count, bytes. */
        public static final long split_count = 24;
        /** Offset of workers, bytes. */
        public static final long workers = 28;
        /** Offset of limit, bytes. */
        public static final long limit = 32;
        /** Offset of ring, bytes. */
        public static final long ring = 40;
        /** Offset of latency_ns, bytes. */
        public static final long latency_ns = 48;
        /** Offset of batches, bytes. */
        public static final long batches = 56;
        /** Offset of connections, bytes. */
        public static final long connections = 60;
        /** Offset of from_ns, bytes. */
        public static final long from_ns = 64;
        /** Offset of to_ns, bytes. */
        public static final long to_ns = 72;
        /** Offset of rules, bytes. */
        public static final long rules = 80;
        /** Offset of yes_take, bytes. */
        public static final long yes_take = 88;
        /** Offset of sets, bytes. */
        public static final long sets = 96;
        /** Offset of set_count, bytes. */
        public static final long set_count = 104;
        /** Offset of dedup, bytes. */
        public static final long dedup = 108;
        /** Offset of dedup_ns, bytes. */
        public static final long dedup_ns = 112;

        static {
            Library.check("weir_options", LAYOUT, 120, 8, new String[] {"size", "flags", "filter", "splits", "split_count", "workers", "limit", "ring", "latency_ns", "batches", "connections", "from_ns", "to_ns", "rules", "yes_take", "sets", "set_count", "dedup", "dedup_ns"}, new long[] {0, 4, 8, 16, 24, 28, 32, 40, 48, 56, 60, 64, 72, 80, 88, 96, 104, 108, 112});
        }
    }

    /** Structure weir_measure_options of weir.h. */
    public static final class weir_measure_options {
        private weir_measure_options() {}

        /** Its layout. */
        public static final StructLayout LAYOUT = MemoryLayout.structLayout(
            JAVA_INT.withName("size"),
            JAVA_INT.withName("flags"),
            ADDRESS.withName("keys"),
            JAVA_INT.withName("key_count"),
            JAVA_INT.withName("rows"),
            JAVA_INT.withName("changers"),
            JAVA_INT.withName("sketch"),
            JAVA_INT.withName("design"),
            JAVA_INT.withName("batch"),
            JAVA_LONG.withName("memory"),
            JAVA_LONG.withName("window_ns"),
            JAVA_LONG.withName("late_ns"),
            JAVA_LONG.withName("seed"),
            ADDRESS.withName("geo"),
            JAVA_INT.withName("geo_count"),
            JAVA_INT.withName("reserved"),
            ADDRESS.withName("columns"));
        /** Offset of size, bytes. */
        public static final long size = 0;
        /** Offset of flags, bytes. */
        public static final long flags = 4;
        /** Offset of keys, bytes. */
        public static final long keys = 8;
        /** Offset of key_count, bytes. */
        public static final long key_count = 16;
        /** Offset of rows, bytes. */
        public static final long rows = 20;
        /** Offset of changers, bytes. */
        public static final long changers = 24;
        /** Offset of sketch, bytes. */
        public static final long sketch = 28;
        /** Offset of design, bytes. */
        public static final long design = 32;
        /** Offset of batch, bytes. */
        public static final long batch = 36;
        /** Offset of memory, bytes. */
        public static final long memory = 40;
        /** Offset of window_ns, bytes. */
        public static final long window_ns = 48;
        /** Offset of late_ns, bytes. */
        public static final long late_ns = 56;
        /** Offset of seed, bytes. */
        public static final long seed = 64;
        /** Offset of geo, bytes. */
        public static final long geo = 72;
        /** Offset of geo_count, bytes. */
        public static final long geo_count = 80;
        /** Offset of reserved, bytes. */
        public static final long reserved = 84;
        /** Offset of columns, bytes. */
        public static final long columns = 88;

        static {
            Library.check("weir_measure_options", LAYOUT, 96, 8, new String[] {"size", "flags", "keys", "key_count", "rows", "changers", "sketch", "design", "batch", "memory", "window_ns", "late_ns", "seed", "geo", "geo_count", "reserved", "columns"}, new long[] {0, 4, 8, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 72, 80, 84, 88});
        }
    }

    /** Structure weir_record_options of weir.h. */
    public static final class weir_record_options {
        private weir_record_options() {}

        /** Its layout. */
        public static final StructLayout LAYOUT = MemoryLayout.structLayout(
            JAVA_INT.withName("size"),
            JAVA_INT.withName("trigger_count"),
            ADDRESS.withName("triggers"),
            ADDRESS.withName("thresholds"),
            JAVA_INT.withName("threshold_count"),
            JAVA_INT.withName("compress"),
            ADDRESS.withName("keep"),
            JAVA_LONG.withName("every_ns"),
            JAVA_LONG.withName("ram"),
            JAVA_LONG.withName("disk"),
            JAVA_LONG.withName("age_ns"),
            JAVA_LONG.withName("cutoff"),
            JAVA_LONG.withName("segment"),
            JAVA_LONG.withName("segment_ns"),
            JAVA_LONG.withName("sync_ns"),
            JAVA_LONG.withName("reserve"),
            JAVA_LONG.withName("saved_size"),
            JAVA_LONG.withName("saved_age_ns"),
            JAVA_LONG.withName("before_ns"),
            JAVA_LONG.withName("after_ns"),
            JAVA_LONG.withName("cooldown_ns"),
            JAVA_LONG.withName("max_size"),
            JAVA_INT.withName("max_files"),
            JAVA_INT.withName("mode"));
        /** Offset of size, bytes. */
        public static final long size = 0;
        /** Offset of trigger_count, bytes. */
        public static final long trigger_count = 4;
        /** Offset of triggers, bytes. */
        public static final long triggers = 8;
        /** Offset of thresholds, bytes. */
        public static final long thresholds = 16;
        /** Offset of threshold_count, bytes. */
        public static final long threshold_count = 24;
        /** Offset of compress, bytes. */
        public static final long compress = 28;
        /** Offset of keep, bytes. */
        public static final long keep = 32;
        /** Offset of every_ns, bytes. */
        public static final long every_ns = 40;
        /** Offset of ram, bytes. */
        public static final long ram = 48;
        /** Offset of disk, bytes. */
        public static final long disk = 56;
        /** Offset of age_ns, bytes. */
        public static final long age_ns = 64;
        /** Offset of cutoff, bytes. */
        public static final long cutoff = 72;
        /** Offset of segment, bytes. */
        public static final long segment = 80;
        /** Offset of segment_ns, bytes. */
        public static final long segment_ns = 88;
        /** Offset of sync_ns, bytes. */
        public static final long sync_ns = 96;
        /** Offset of reserve, bytes. */
        public static final long reserve = 104;
        /** Offset of saved_size, bytes. */
        public static final long saved_size = 112;
        /** Offset of saved_age_ns, bytes. */
        public static final long saved_age_ns = 120;
        /** Offset of before_ns, bytes. */
        public static final long before_ns = 128;
        /** Offset of after_ns, bytes. */
        public static final long after_ns = 136;
        /** Offset of cooldown_ns, bytes. */
        public static final long cooldown_ns = 144;
        /** Offset of max_size, bytes. */
        public static final long max_size = 152;
        /** Offset of max_files, bytes. */
        public static final long max_files = 160;
        /** Offset of mode, bytes. */
        public static final long mode = 164;

        static {
            Library.check("weir_record_options", LAYOUT, 168, 8, new String[] {"size", "trigger_count", "triggers", "thresholds", "threshold_count", "compress", "keep", "every_ns", "ram", "disk", "age_ns", "cutoff", "segment", "segment_ns", "sync_ns", "reserve", "saved_size", "saved_age_ns", "before_ns", "after_ns", "cooldown_ns", "max_size", "max_files", "mode"}, new long[] {0, 4, 8, 16, 24, 28, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136, 144, 152, 160, 164});
        }
    }

    /** Structure weir_sink_options of weir.h. */
    public static final class weir_sink_options {
        private weir_sink_options() {}

        /** Its layout. */
        public static final StructLayout LAYOUT = MemoryLayout.structLayout(
            JAVA_INT.withName("size"),
            JAVA_INT.withName("flags"),
            ADDRESS.withName("yes_send"),
            JAVA_LONG.withName("reserve"),
            JAVA_LONG.withName("shift_ns"),
            ADDRESS.withName("anonymize"),
            JAVA_LONG.withName("payload"));
        /** Offset of size, bytes. */
        public static final long size = 0;
        /** Offset of flags, bytes. */
        public static final long flags = 4;
        /** Offset of yes_send, bytes. */
        public static final long yes_send = 8;
        /** Offset of reserve, bytes. */
        public static final long reserve = 16;
        /** Offset of shift_ns, bytes. */
        public static final long shift_ns = 24;
        /** Offset of anonymize, bytes. */
        public static final long anonymize = 32;
        /** Offset of payload, bytes. */
        public static final long payload = 40;

        static {
            Library.check("weir_sink_options", LAYOUT, 48, 8, new String[] {"size", "flags", "yes_send", "reserve", "shift_ns", "anonymize", "payload"}, new long[] {0, 4, 8, 16, 24, 32, 40});
        }
    }

    /** Structure weir_sink_counts of weir.h. */
    public static final class weir_sink_counts {
        private weir_sink_counts() {}

        /** Its layout. */
        public static final StructLayout LAYOUT = MemoryLayout.structLayout(
            JAVA_LONG.withName("given"),
            JAVA_LONG.withName("written"),
            JAVA_LONG.withName("refused"),
            JAVA_LONG.withName("lost"));
        /** Offset of given, bytes. */
        public static final long given = 0;
        /** Offset of written, bytes. */
        public static final long written = 8;
        /** Offset of refused, bytes. */
        public static final long refused = 16;
        /** Offset of lost, bytes. */
        public static final long lost = 24;

        static {
            Library.check("weir_sink_counts", LAYOUT, 32, 8, new String[] {"given", "written", "refused", "lost"}, new long[] {0, 8, 16, 24});
        }
    }

    /** Structure weir_descriptor of weir.h. */
    public static final class weir_descriptor {
        private weir_descriptor() {}

        /** Its layout. */
        public static final StructLayout LAYOUT = MemoryLayout.structLayout(
            JAVA_LONG.withName("offset"),
            JAVA_LONG.withName("time_ns"),
            JAVA_INT.withName("captured"),
            JAVA_INT.withName("wire_len"),
            JAVA_INT.withName("interface"),
            JAVA_INT.withName("flags"));
        /** Offset of offset, bytes. */
        public static final long offset = 0;
        /** Offset of time_ns, bytes. */
        public static final long time_ns = 8;
        /** Offset of captured, bytes. */
        public static final long captured = 16;
        /** Offset of wire_len, bytes. */
        public static final long wire_len = 20;
        /** Offset of interface_, bytes. */
        public static final long interface_ = 24;
        /** Offset of flags, bytes. */
        public static final long flags = 28;

        static {
            Library.check("weir_descriptor", LAYOUT, 32, 8, new String[] {"offset", "time_ns", "captured", "wire_len", "interface", "flags"}, new long[] {0, 8, 16, 20, 24, 28});
        }
    }

    /** Structure weir_batch of weir.h. */
    public static final class weir_batch {
        private weir_batch() {}

        /** Its layout. */
        public static final StructLayout LAYOUT = MemoryLayout.structLayout(
            JAVA_LONG.withName("lease"),
            ADDRESS.withName("region"),
            JAVA_LONG.withName("region_len"),
            ADDRESS.withName("packets"),
            ADDRESS.withName("verdicts"),
            JAVA_INT.withName("len"),
            JAVA_INT.withName("passed"),
            JAVA_LONG.withName("filter"),
            JAVA_INT.withName("link_type"),
            JAVA_INT.withName("reserved"));
        /** Offset of lease, bytes. */
        public static final long lease = 0;
        /** Offset of region, bytes. */
        public static final long region = 8;
        /** Offset of region_len, bytes. */
        public static final long region_len = 16;
        /** Offset of packets, bytes. */
        public static final long packets = 24;
        /** Offset of verdicts, bytes. */
        public static final long verdicts = 32;
        /** Offset of len, bytes. */
        public static final long len = 40;
        /** Offset of passed, bytes. */
        public static final long passed = 44;
        /** Offset of filter, bytes. */
        public static final long filter = 48;
        /** Offset of link_type, bytes. */
        public static final long link_type = 56;
        /** Offset of reserved, bytes. */
        public static final long reserved = 60;

        static {
            Library.check("weir_batch", LAYOUT, 64, 8, new String[] {"lease", "region", "region_len", "packets", "verdicts", "len", "passed", "filter", "link_type", "reserved"}, new long[] {0, 8, 16, 24, 32, 40, 44, 48, 56, 60});
        }
    }

    /** Structure weir_counts of weir.h. */
    public static final class weir_counts {
        private weir_counts() {}

        /** Its layout. */
        public static final StructLayout LAYOUT = MemoryLayout.structLayout(
            JAVA_LONG.withName("received"),
            JAVA_LONG.withName("passed"),
            JAVA_LONG.withName("filtered"),
            JAVA_LONG.withName("denied"),
            JAVA_LONG.withName("dropped_source"),
            JAVA_LONG.withName("dropped_output"),
            JAVA_LONG.withName("bytes"),
            JAVA_LONG.withName("lost_before"),
            JAVA_LONG.withName("waiting"),
            JAVA_LONG.withName("held"),
            JAVA_LONG.withName("starved"),
            JAVA_LONG.withName("is_final"),
            JAVA_LONG.withName("loss_not_recorded"));
        /** Offset of received, bytes. */
        public static final long received = 0;
        /** Offset of passed, bytes. */
        public static final long passed = 8;
        /** Offset of filtered, bytes. */
        public static final long filtered = 16;
        /** Offset of denied, bytes. */
        public static final long denied = 24;
        /** Offset of dropped_source, bytes. */
        public static final long dropped_source = 32;
        /** Offset of dropped_output, bytes. */
        public static final long dropped_output = 40;
        /** Offset of bytes, bytes. */
        public static final long bytes = 48;
        /** Offset of lost_before, bytes. */
        public static final long lost_before = 56;
        /** Offset of waiting, bytes. */
        public static final long waiting = 64;
        /** Offset of held, bytes. */
        public static final long held = 72;
        /** Offset of starved, bytes. */
        public static final long starved = 80;
        /** Offset of is_final, bytes. */
        public static final long is_final = 88;
        /** Offset of loss_not_recorded, bytes. */
        public static final long loss_not_recorded = 96;

        static {
            Library.check("weir_counts", LAYOUT, 104, 8, new String[] {"received", "passed", "filtered", "denied", "dropped_source", "dropped_output", "bytes", "lost_before", "waiting", "held", "starved", "is_final", "loss_not_recorded"}, new long[] {0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96});
        }
    }

    /** Structure weir_interface of weir.h. */
    public static final class weir_interface {
        private weir_interface() {}

        /** Its layout. */
        public static final StructLayout LAYOUT = MemoryLayout.structLayout(
            JAVA_INT.withName("link_type"),
            JAVA_INT.withName("snaplen"));
        /** Offset of link_type, bytes. */
        public static final long link_type = 0;
        /** Offset of snaplen, bytes. */
        public static final long snaplen = 4;

        static {
            Library.check("weir_interface", LAYOUT, 8, 4, new String[] {"link_type", "snaplen"}, new long[] {0, 4});
        }
    }

    /** {@code uint32_t weir_abi()} */
    public static final MethodHandle weir_abi =
        Library.function("weir_abi", FunctionDescriptor.of(JAVA_INT));

    /** {@code const char * weir_version()} */
    public static final MethodHandle weir_version =
        Library.function("weir_version", FunctionDescriptor.of(ADDRESS));

    /** {@code weir_status weir_answer_tcp(weir_text answer, weir_tcp *tcp, weir_tcp_figures *sum)} */
    public static final MethodHandle weir_answer_tcp =
        Library.function("weir_answer_tcp", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, ADDRESS, ADDRESS));

    /** {@code weir_status weir_answer_conversation(weir_text answer, size_t index, weir_tcp_conversation *conversation, weir_tcp_figures *sent, weir_tcp_figures *received)} */
    public static final MethodHandle weir_answer_conversation =
        Library.function("weir_answer_conversation", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS));

    /** {@code weir_status weir_answer_dns(weir_text answer, weir_dns *dns, weir_dns_figures *sum)} */
    public static final MethodHandle weir_answer_dns =
        Library.function("weir_answer_dns", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, ADDRESS, ADDRESS));

    /** {@code weir_status weir_answer_dns_row(weir_text answer, uint32_t list, size_t index, weir_dns_figures *row)} */
    public static final MethodHandle weir_answer_dns_row =
        Library.function("weir_answer_dns_row", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_INT, JAVA_LONG, ADDRESS));

    /** {@code weir_status weir_answer_finding(weir_text answer, size_t index, weir_finding *finding)} */
    public static final MethodHandle weir_answer_finding =
        Library.function("weir_answer_finding", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG, ADDRESS));

    /** {@code weir_status weir_release(weir_lease lease)} */
    public static final MethodHandle weir_release =
        Library.shortFunction("weir_release", FunctionDescriptor.of(JAVA_INT, JAVA_LONG));

    /** {@code weir_status weir_split(weir_lease lease, uint32_t split, const uint64_t **verdicts)} */
    public static final MethodHandle weir_split =
        Library.shortFunction("weir_split", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_INT, ADDRESS));

    /** {@code weir_status weir_fill(weir_lease lease, uint32_t first, int32_t passed, const weir_column *columns, size_t count, uint32_t *written, uint32_t *next, weir_text *error)} */
    public static final MethodHandle weir_fill =
        Library.function("weir_fill", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_INT, JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS));

    /** {@code weir_status weir_measure_open(const char *const *names, size_t count, const weir_options *options, const weir_measure_options *measure_options, weir_measure *measure, weir_text *error)} */
    public static final MethodHandle weir_measure_open =
        Library.function("weir_measure_open", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS, ADDRESS));

    /** {@code weir_status weir_measure_next(weir_measure measure, uint64_t timeout_ns, weir_text *text, uint32_t *is_summary, weir_text *error)} */
    public static final MethodHandle weir_measure_next =
        Library.function("weir_measure_next", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS));

    /** {@code weir_status weir_measure_stop(weir_measure measure)} */
    public static final MethodHandle weir_measure_stop =
        Library.function("weir_measure_stop", FunctionDescriptor.of(JAVA_INT, JAVA_LONG));

    /** {@code weir_status weir_measure_remarks(weir_measure measure, weir_text *text)} */
    public static final MethodHandle weir_measure_remarks =
        Library.function("weir_measure_remarks", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, ADDRESS));

    /** {@code weir_status weir_measure_close(weir_measure measure)} */
    public static final MethodHandle weir_measure_close =
        Library.function("weir_measure_close", FunctionDescriptor.of(JAVA_INT, JAVA_LONG));

    /** {@code weir_status weir_record_open(const char *const *names, size_t count, const char *directory, const weir_options *options, const weir_record_options *record_options, weir_record *record, weir_text *error)} */
    public static final MethodHandle weir_record_open =
        Library.function("weir_record_open", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS));

    /** {@code weir_status weir_record_trigger(weir_record record, const char *name, uint64_t before_ns, uint64_t after_ns, weir_text *text, weir_text *error)} */
    public static final MethodHandle weir_record_trigger =
        Library.function("weir_record_trigger", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, ADDRESS, JAVA_LONG, JAVA_LONG, ADDRESS, ADDRESS));

    /** {@code weir_status weir_record_status(weir_record record, weir_text *text)} */
    public static final MethodHandle weir_record_status =
        Library.function("weir_record_status", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, ADDRESS));

    /** {@code weir_status weir_record_next(weir_record record, uint64_t timeout_ns, weir_text *text, weir_text *error)} */
    public static final MethodHandle weir_record_next =
        Library.function("weir_record_next", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG, ADDRESS, ADDRESS));

    /** {@code weir_status weir_record_stop(weir_record record)} */
    public static final MethodHandle weir_record_stop =
        Library.function("weir_record_stop", FunctionDescriptor.of(JAVA_INT, JAVA_LONG));

    /** {@code weir_status weir_record_remarks(weir_record record, weir_text *text)} */
    public static final MethodHandle weir_record_remarks =
        Library.function("weir_record_remarks", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, ADDRESS));

    /** {@code weir_status weir_record_close(weir_record record, weir_text *text, weir_text *error)} */
    public static final MethodHandle weir_record_close =
        Library.function("weir_record_close", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, ADDRESS, ADDRESS));

    /** {@code weir_status weir_sink_open(const char *name, weir_sink *sink, weir_text *error)} */
    public static final MethodHandle weir_sink_open =
        Library.function("weir_sink_open", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, ADDRESS));

    /** {@code weir_status weir_sink_open_with(const char *name, const weir_sink_options *options, weir_sink *sink, weir_text *error)} */
    public static final MethodHandle weir_sink_open_with =
        Library.function("weir_sink_open_with", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, ADDRESS, ADDRESS));

    /** {@code weir_status weir_send(weir_sink sink, weir_lease lease, const uint64_t *verdicts, weir_text *error)} */
    public static final MethodHandle weir_send =
        Library.function("weir_send", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG, ADDRESS, ADDRESS));

    /** {@code weir_status weir_sink_close(weir_sink sink, weir_sink_counts *counts, weir_text *error)} */
    public static final MethodHandle weir_sink_close =
        Library.function("weir_sink_close", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, ADDRESS, ADDRESS));

    /** {@code weir_status weir_open(const char *const *names, size_t count, const weir_options *options, weir_source *source, weir_text *error)} */
    public static final MethodHandle weir_open =
        Library.function("weir_open", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS));

    /** {@code weir_status weir_next(weir_source source, uint64_t timeout_ns, weir_batch *batch, weir_text *error)} */
    public static final MethodHandle weir_next =
        Library.function("weir_next", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG, ADDRESS, ADDRESS));

    /** {@code weir_status weir_poll_fd(weir_source source, int32_t *fd)} */
    public static final MethodHandle weir_poll_fd =
        Library.function("weir_poll_fd", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, ADDRESS));

    /** {@code weir_status weir_stop(weir_source source)} */
    public static final MethodHandle weir_stop =
        Library.function("weir_stop", FunctionDescriptor.of(JAVA_INT, JAVA_LONG));

    /** {@code weir_status weir_set_filter(weir_source source, const char *expression, uint64_t timeout_ns, uint64_t *filter, weir_text *error)} */
    public static final MethodHandle weir_set_filter =
        Library.function("weir_set_filter", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS));

    /** {@code weir_status weir_set_rules(weir_source source, const char *rules, weir_text *error)} */
    public static final MethodHandle weir_set_rules =
        Library.function("weir_set_rules", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, ADDRESS, ADDRESS));

    /** {@code weir_status weir_counts_of(weir_source source, weir_counts *counts)} */
    public static final MethodHandle weir_counts_of =
        Library.function("weir_counts_of", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, ADDRESS));

    /** {@code weir_status weir_remarks(weir_source source, weir_text *text)} */
    public static final MethodHandle weir_remarks =
        Library.function("weir_remarks", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, ADDRESS));

    /** {@code weir_status weir_interface_of(weir_lease lease, uint32_t index, weir_interface *interface)} */
    public static final MethodHandle weir_interface_of =
        Library.function("weir_interface_of", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_INT, ADDRESS));

    /** {@code weir_status weir_close(weir_source source, weir_counts *counts)} */
    public static final MethodHandle weir_close =
        Library.function("weir_close", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, ADDRESS));

    /** {@code weir_status weir_text_read(weir_text text, const char **bytes, size_t *length)} */
    public static final MethodHandle weir_text_read =
        Library.function("weir_text_read", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, ADDRESS, ADDRESS));

    /** {@code weir_status weir_text_free(weir_text text)} */
    public static final MethodHandle weir_text_free =
        Library.function("weir_text_free", FunctionDescriptor.of(JAVA_INT, JAVA_LONG));

    /** {@code weir_status weir_pin_thread(uint32_t cpu)} */
    public static final MethodHandle weir_pin_thread =
        Library.function("weir_pin_thread", FunctionDescriptor.of(JAVA_INT, JAVA_INT));

    /** {@code weir_status weir_cpus(uint32_t *cpus, uint32_t capacity, uint32_t *count)} */
    public static final MethodHandle weir_cpus =
        Library.function("weir_cpus", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT, ADDRESS));

    /** {@code weir_status weir_node_of(weir_lease lease, uint32_t *node)} */
    public static final MethodHandle weir_node_of =
        Library.function("weir_node_of", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, ADDRESS));
}
