/* weir for C. Made from the Rust crate weir-ffi: change that, not this file. */

#ifndef WEIR_H
#define WEIR_H

#include <stddef.h>
#include <stdint.h>

// Version of the functions and structures: it grows with each change that breaks programs built earlier.
#define WEIR_ABI 1

// The list of DNS servers with the most queries.
#define WEIR_DNS_SERVERS 0

// The list of names with the longest times.
#define WEIR_DNS_SLOW 1

// The list of names with the most answers of failure.
#define WEIR_DNS_FAILING 2

// The list of names with the most queries without an answer.
#define WEIR_DNS_UNANSWERED 3

// Interfaces of the source have several link types: weir_interface_of returns the link type of
// each packet.
#define WEIR_MIXED 65536

// Time of capture, ns since 1970 (int64_t); INT64_MIN without a timestamp.
#define WEIR_TIME 0

// Length on the wire, bytes (uint32_t).
#define WEIR_WIRE_LEN 1

// Captured length, bytes (uint32_t).
#define WEIR_CAPTURED 2

// Index of the interface in its source (uint32_t).
#define WEIR_INTERFACE 3

// 4 or 6, and 0 for frames without IP (uint8_t).
#define WEIR_IP_VERSION 4

// Source address of IPv4 as a number, 10.0.0.1 being 0x0a000001; else 0 (uint32_t).
#define WEIR_SRC4 5

// Destination address of IPv4 as a number; else 0 (uint32_t).
#define WEIR_DST4 6

// Source address, 16 bytes in network order; of IPv4 as ::ffff:a.b.c.d; zeros without IP (uint8_t[16]).
#define WEIR_SRC 7

// Destination address, 16 bytes (uint8_t[16]).
#define WEIR_DST 8

// IP protocol number of the transport; 255 if it is unknown (uint8_t).
#define WEIR_PROTOCOL 9

// Source port; 0 without one (uint16_t).
#define WEIR_SRC_PORT 10

// Destination port; 0 without one (uint16_t).
#define WEIR_DST_PORT 11

// TCP flags, FIN being the lowest bit; 0 without TCP (uint8_t).
#define WEIR_TCP_FLAGS 12

// Identifier of the outermost VLAN tag; 65535 without one (uint16_t).
#define WEIR_VLAN 13

// Offset of the IP header in the frame, bytes; -1 for frames without IP (int32_t).
#define WEIR_NETWORK_OFFSET 14

// Offset of the transport header in the frame, after IPv6 extension headers, bytes; -1 if no byte
// of it was captured, and in fragments other than the first (int32_t).
#define WEIR_TRANSPORT_OFFSET 15

// Offset of the payload of TCP, UDP, UDP-Lite, SCTP (the first chunk) or DCCP in the frame, bytes;
// -1 if no byte of one was captured, and for other protocols. Padding after the IP packet is not a
// payload (int32_t).
#define WEIR_PAYLOAD_OFFSET 16

// Bytes rank the keys, and not packets.
#define WEIR_BY_BYTES 1

// Several files are read one after another; without it, files with windows are merged by the time of their packets.
#define WEIR_NO_MERGE 2

// All workers share their tables.
#define WEIR_SHARED 4

// The hash functions have the seed of weir_measure_options; without it, a seed is drawn, so that nobody can aim collisions.
#define WEIR_SEED 8

// Numbers of distinct addresses at the other end rank the keys.
#define WEIR_BY_PEERS 16

// Numbers of distinct destination ports rank the keys.
#define WEIR_BY_PORTS 32

// Numbers of distinct pairs of a peer and a destination port rank the keys.
#define WEIR_BY_CONTACTS 64

// Each window is searched for findings: scans, floods, storms, losses and new hosts; with WEIR_HEALTH_DNS also slow DNS servers. Needs
// windows of 1 s or longer.
#define WEIR_FINDINGS 128

// The health of TCP is examined: weir_answer_tcp.
#define WEIR_HEALTH_TCP 256

// The health of DNS is examined: weir_answer_dns.
#define WEIR_HEALTH_DNS 512

// Fragments and messages that a packet is too big are counted: `health.mtu` of the answer.
#define WEIR_HEALTH_MTU 1024

// Table of the largest keys, with bounds that always hold.
#define WEIR_HEAVY 0

// Table of every key, as long as there is memory.
#define WEIR_EXACT 1

// Count-Min, with a heavy table next to it to name the keys.
#define WEIR_CMS 2

// Count-Min with conservative update: closer, never lower.
#define WEIR_CMS_CONSERVATIVE 3

// Simple Hash Table: one slot for each hash, without a bound.
#define WEIR_SHT 4

// MV-Sketch: buckets vote for their largest keys, with bounds that always hold.
#define WEIR_MV 5

// Reversible Sketch: IPv4 addresses and pairs, recovered from counters and their changes.
#define WEIR_RS 6

// Set-per-entry Reversible Sketch of the study: flows, without a bound, and slow.
#define WEIR_RS_SET 7

// Each worker has pieces of the source, if the source can be split; else as WEIR_ASYNC.
#define WEIR_AUTO 0

// Each worker has pieces of a file, or a ring or queue of an interface.
#define WEIR_RSS 1

// A distributor feeds a ring for each worker.
#define WEIR_ASYNC 2

// A distributor hands out a batch and waits for all workers.
#define WEIR_SYNC 3

// Packets of several files are merged in time order.
#define WEIR_MERGE 1

// All packets are put in time order before the first is delivered.
#define WEIR_SORT 2

// The verdicts of the filter are inverted.
#define WEIR_INVERT 4

// The filter judges the innermost packet of a tunnel.
#define WEIR_INNER 8

// Names of hosts in the filter are looked up.
#define WEIR_RESOLVE 16

// The interface receives only packets for this host.
#define WEIR_NO_PROMISCUOUS 32

// The kernel does not filter: the batches also have packets that do not match.
#define WEIR_NO_KERNEL_FILTER 64

// Only packets that the interface receives.
#define WEIR_IN 128

// Only packets that the interface sends.
#define WEIR_OUT 256

// Wait until the interface is there and up.
#define WEIR_WAIT 512

// Poll without sleep (AF_XDP and DPDK).
#define WEIR_BUSY_POLL 1024

// Status of a call: 0 or more if it did its work, less than 0 if it did not.
typedef int32_t weir_status;

// A text. Free it with weir_text_free: texts count among the 65536 objects that a process may have.
//
// A text about an error is the line that the command would print. If it names a flag, such as `--ring` or `--memory`, the option of that name
// is meant, here weir_options.ring or weir_measure_options.memory.
typedef uint64_t weir_text;

// Health of the TCP conversations of an answer. The page docs/reference/health.md has the rule of each figure.
typedef struct {
  // Conversations.
  uint64_t conversations;
  // Conversations whose begin was not seen.
  uint64_t midway;
  // Conversations for which there is room.
  uint64_t capacity;
  // Conversations that were displaced because the table was full; the sums have their figures.
  uint64_t evicted;
  // The most that a displaced conversation had retransmitted.
  uint64_t evicted_retransmitted;
  // TCP packets that could not be judged, such as fragments.
  uint64_t unjudged;
  // Rows for weir_answer_conversation.
  uint64_t rows;
} weir_tcp;

// Figures of TCP segments: of one end of a conversation, or of all conversations.
typedef struct {
  // Segments.
  uint64_t packets;
  // Bytes of payload.
  uint64_t payload;
  // Segments sent again.
  uint64_t retransmitted;
  // Bytes of payload sent again.
  uint64_t retransmitted_bytes;
  // Retransmitted segments that duplicate ACKs asked for.
  uint64_t fast;
  // Retransmitted segments that were acknowledged before.
  uint64_t spurious;
  // Segments whose bytes were seen before.
  uint64_t repeated;
  // Segments out of order.
  uint64_t out_of_order;
  // Duplicate ACKs.
  uint64_t duplicate_acks;
  // Windows of 0.
  uint64_t zero_windows;
  // Segments with RST.
  uint64_t resets;
  // Segments after a gap.
  uint64_t gaps;
  // Segments whose acknowledgement was not timed.
  uint64_t untimed;
  // Acknowledgements that were timed.
  uint64_t rtt_count;
  // Shortest round trip, ns; -1 without one.
  int64_t rtt_min_ns;
  // Mean round trip, ns; -1 without one.
  int64_t rtt_mean_ns;
  // Longest round trip, ns; -1 without one.
  int64_t rtt_max_ns;
} weir_tcp_figures;

// A TCP conversation. Its texts stay until the answer is freed.
typedef struct {
  // Address of the client; of the lower end if the begin was not seen.
  const char *src;
  // Address of the other end.
  const char *dst;
  // Port of `src`.
  uint32_t sport;
  // Port of `dst`.
  uint32_t dport;
  // Time of the first packet, ns since 1970.
  int64_t first_ns;
  // Time of the latest packet.
  int64_t latest_ns;
  // Time of the handshake, ns; -1 if it is unknown.
  int64_t handshake_ns;
  // 1 if the begin was seen.
  uint32_t begun;
  // 0.
  uint32_t reserved;
} weir_tcp_conversation;

// Health of the DNS transactions of an answer.
typedef struct {
  // Answers without a query.
  uint64_t unasked;
  // Messages that could not be read.
  uint64_t unread;
  // Names for which there is room.
  uint64_t capacity;
  // Open queries that were displaced because the table was full.
  uint64_t evicted_queries;
  // Names that were displaced.
  uint64_t evicted_names;
  // Servers that were displaced.
  uint64_t evicted_servers;
  // Rows of the list WEIR_DNS_SERVERS.
  uint64_t servers;
  // Rows of the list WEIR_DNS_SLOW.
  uint64_t slow;
  // Rows of the list WEIR_DNS_FAILING.
  uint64_t failing;
  // Rows of the list WEIR_DNS_UNANSWERED.
  uint64_t unanswered;
} weir_dns;

// Figures of DNS transactions: of a server, of a name, or of all.
typedef struct {
  // Address of the server, or the name, as text of printable ASCII; NULL for all transactions. It stays until the answer is freed.
  const char *name;
  // Numbers of answers by response code: 0 no error, 2 server failure, 3 no such name. They stay until the answer is freed.
  const uint64_t *codes;
  // Number of `codes`.
  uint32_t code_count;
  // 0.
  uint32_t reserved;
  // Queries that began a transaction.
  uint64_t queries;
  // Queries sent again.
  uint64_t retransmitted;
  // Answers after the first.
  uint64_t repeated;
  // Queries without an answer.
  uint64_t unanswered;
  // Transactions that were timed.
  uint64_t time_count;
  // Median time, ns, within 7 %; -1 without one.
  int64_t median_ns;
  // Mean time, ns; -1 without one.
  int64_t mean_ns;
  // Longest time, ns; -1 without one.
  int64_t max_ns;
} weir_dns_figures;

// A finding that began or ended. Its texts stay until the answer is freed.
typedef struct {
  // Number of the finding; its begin and its end have the same.
  uint64_t number;
  // "scan", "flood", "storm", "slow_dns", "loss" or "new_host".
  const char *kind;
  // "begin"; "end"; "open": it goes on at the end of the measurement.
  const char *state;
  // Address that it is about; NULL: the whole link.
  const char *host;
  // Begin of the first window that met the rule, ns since 1970.
  int64_t begin_ns;
  // End of the last window that met it.
  int64_t last_ns;
  // Figure of the last window, in `unit`.
  double figure;
  // Largest figure.
  double most;
  // Unit of both figures, in words.
  const char *unit;
  // Counts of the window with the largest figure, in words.
  const char *row;
} weir_finding;

// A batch that is held. Give it back with weir_release.
typedef uint64_t weir_lease;

// An array of the caller for one field of packets.
typedef struct {
  // WEIR_TIME to WEIR_PAYLOAD_OFFSET.
  uint32_t field;
  // Number of elements for which there is room.
  uint32_t capacity;
  // First element, aligned for its type.
  void *values;
} weir_column;

// Settings of a source. Set all bytes to 0 and `size` to sizeof(weir_options): a 0 stands for the default of each field.
typedef struct {
  // sizeof(weir_options).
  uint32_t size;
  // WEIR_MERGE and so on, added.
  uint32_t flags;
  // Filter in the language of libpcap; NULL or "" for all packets.
  const char *filter;
  // Further filters, each of which marks some of the packets that pass; their number is `split_count`.
  const char *const *splits;
  // Number of splits.
  uint32_t split_count;
  // Threads that read and filter files; 0 for one for each processor.
  uint32_t workers;
  // Number of packets that pass, after which the source ends; 0 for no limit.
  uint64_t limit;
  // Memory for packets of an interface that were not taken yet, bytes; 0 for 32 MiB.
  uint64_t ring;
  // Longest time for which a packet of an interface waits for others, ns; 0 for 50 ms. With
  // AF_PACKET it is whole milliseconds, and blocks of the ring are smaller by as much as it is
  // shorter, so that the ring still has room for 1.6 s of few packets; but a block holds the
  // largest frame: 128 KiB, so that a ring of 32 MiB has room for 256 times the latency.
  uint64_t latency_ns;
  // Most batches that wait or are held, up to 4096; 0 for 64. While there are so many, a file is
  // not read, and a capture drops packets once its ring is full, and counts them. With AF_PACKET
  // a batch is a block of the ring, even if it holds one packet (1 MiB; of a ring below 32 MiB
  // or with a latency below 50 ms less), and blocks are filled in turn: the kernel stops at a
  // block that is still in use. Release batches about in their order.
  uint32_t batches;
  // Number of connections for which there is room if a rule asks for the states of packets; 0 for 65536.
  uint32_t connections;
  // The least time of the wanted packets, ns since 1970; 0 for no limit.
  int64_t from_ns;
  // The greatest time; 0 for no limit.
  int64_t to_ns;
  // Rules of a firewall, in the language of `weir firewall`; NULL for none. Packets that the rules deny have the verdict 0, and are
  // counted as denied. Names of files in the rules are relative to the working directory.
  const char *rules;
  // Interfaces, with commas between them, whose packets AF_XDP or DPDK may take away from this
  // host, although they carry its default route or the login of this program, or are ports of a
  // bridge; NULL for none.
  const char *yes_take;
  // Sets of addresses that expressions name as in "src @banned": each is a name and a file, such as "banned=banned.txt"; their number
  // is `set_count`. The file has an address, a prefix or a range a line, # begins a comment, and it is read by the opening.
  const char *const *sets;
  // Number of sets.
  uint32_t set_count;
  // Duplicates are left out of the packets that pass: a duplicate has the bytes of one of so many packets that pass, itself included, 2
  // to 1000000; 0 for none, or by `dedup_ns`.
  uint32_t dedup;
  // Duplicates are packets with the bytes of a packet up to this time before, ns; 0 for none, or by `dedup`.
  uint64_t dedup_ns;
} weir_options;

// Settings of a measurement. Set all bytes to 0 and `size` to sizeof(weir_measure_options): a 0 stands for the default of each field.
typedef struct {
  // sizeof(weir_measure_options).
  uint32_t size;
  // WEIR_BY_BYTES and so on, added.
  uint32_t flags;
  // Keys to count by, a table each: 5tuple, conversation, src, dst, host, dport, service, vlan and others of weir help keys, prefixes such as src/24; their number
  // is `key_count`. By default 5tuple.
  const char *const *keys;
  // Number of keys.
  uint32_t key_count;
  // Most rows of a table; 0 for 10.
  uint32_t rows;
  // Most rows of a table of the keys that changed most since the window before; 0 for no such table.
  uint32_t changers;
  // WEIR_HEAVY, WEIR_EXACT, WEIR_CMS, WEIR_CMS_CONSERVATIVE, WEIR_SHT, WEIR_MV, WEIR_RS or WEIR_RS_SET.
  uint32_t sketch;
  // WEIR_AUTO, WEIR_RSS, WEIR_ASYNC or WEIR_SYNC.
  uint32_t design;
  // Packets that a worker takes at once; 0 for 32.
  uint32_t batch;
  // Memory of each table, bytes; 0 for a size that follows the caches (heavy, 1 to 4 MiB) or 4 MiB. There is a table for each key, for each worker, for each open window.
  uint64_t memory;
  // Length of a window of packet time, ns; 0 for one answer about all packets.
  uint64_t window_ns;
  // Time that a window waits for late packets, ns; 0 for 1 s, or the window if that is shorter; of interfaces 200 ms.
  uint64_t late_ns;
  // Seed of the hash functions, with WEIR_SEED.
  uint64_t seed;
  // Databases in the MaxMind DB format (.mmdb), for the keys asn, country and network, and for columns such as src_country; their number
  // is `geo_count`. They are read by the opening.
  const char *const *geo;
  // Number of databases.
  uint32_t geo_count;
  // 0.
  uint32_t reserved;
  // Names of the columns of the rows, with commas between them; NULL for the usual ones.
  const char *columns;
} weir_measure_options;

// A measurement. Close it with weir_measure_close.
typedef uint64_t weir_measure;

// Settings of a recording. Set all bytes to 0 and `size` to sizeof(weir_record_options): a 0 stands for the default of each field.
typedef struct {
  // sizeof(weir_record_options).
  uint32_t size;
  // Number of triggers.
  uint32_t trigger_count;
  // Triggers that an expression fires: NAME=EXPR, such as "dns=udp port 53"; or the ready rule "scan". Their number is
  // `trigger_count`. Without any trigger there is one for weir_record_trigger, named "signal".
  const char *const *triggers;
  // Triggers that a threshold fires: NAME=KEY>VALUE FIGURE/WINDOW, such as "many=src>100 peers/10s"; their number is `threshold_count`.
  const char *const *thresholds;
  // Number of thresholds.
  uint32_t threshold_count;
  // Level of zstd with which complete files of the record on disk are compressed, 1 to 19; 0 for none.
  uint32_t compress;
  // Packets that triggers save: "all", "flow", "host" or an expression; NULL for all.
  const char *keep;
  // Interval at which a trigger "every" fires, ns; 0 for no such trigger.
  uint64_t every_ns;
  // Memory for packets, bytes; 0 for 4 GiB, or a quarter of the free memory if that is less.
  uint64_t ram;
  // Largest size of the record on disk, bytes, at least 8 MiB; 0 for no record but the files that triggers save.
  uint64_t disk;
  // Longest time for which packets are kept, ns; 0 for as long as there is room.
  uint64_t age_ns;
  // Bytes of each conversation that are kept; 0 for no limit.
  uint64_t cutoff;
  // Largest length of a file of the record on disk, bytes; 0 for 256 MiB, or an eighth of `disk` if that is less.
  uint64_t segment;
  // Longest time of such a file, ns; 0 for an eighth of `age_ns`.
  uint64_t segment_ns;
  // Largest interval at which packets on disk are made durable, ns; 0 for 1 s.
  uint64_t sync_ns;
  // Bytes of the file system that stay free; 0 for 1 GiB.
  uint64_t reserve;
  // Largest size of all saved files, bytes; 0 for no limit.
  uint64_t saved_size;
  // Longest time for which saved files are kept, ns; 0 for no limit.
  uint64_t saved_age_ns;
  // Time before a trigger fires from which on packets are saved, ns; 0 for 10 s.
  uint64_t before_ns;
  // Time after that up to which packets are saved, ns; 0 for 5 s.
  uint64_t after_ns;
  // Time after a file during which its trigger does not fire, ns.
  uint64_t cooldown_ns;
  // Largest length of a saved file, bytes; 0 for 1 GiB.
  uint64_t max_size;
  // Most files that a trigger saves; 0 for 1000.
  uint32_t max_files;
  // Permission bits of the files; 0 for 0600.
  uint32_t mode;
} weir_record_options;

// A recording. Close it with weir_record_close.
typedef uint64_t weir_record;

// A file or an interface that takes packets. Close it with weir_sink_close.
typedef uint64_t weir_sink;

// Settings of a sink. Set all bytes to 0 and `size` to sizeof(weir_sink_options): a 0 stands for the default of each field.
typedef struct {
  // sizeof(weir_sink_options).
  uint32_t size;
  // 0.
  uint32_t flags;
  // Interfaces, with commas between them, that may send although they carry the default route of this host or the login of this program,
  // or are ports of a bridge; NULL for none.
  const char *yes_send;
  // Bytes of the disk that stay free: a file grows no further, and the sink has failed then; 0 for 1 GiB, or a twentieth of the disk if
  // that is less.
  uint64_t reserve;
  // Time that is added to the timestamps of packets, ns.
  int64_t shift_ns;
  // File with the key of other addresses, 32 bytes that its owner alone may read: packets get other addresses by it, as with
  // `--anonymize`. NULL leaves addresses as they are.
  const char *anonymize;
  // Bytes of payload that are kept of each packet with other addresses. Payload may have addresses, which stay.
  uint64_t payload;
} weir_sink_options;

// Packets by what became of them: given = written + refused + lost.
typedef struct {
  // Packets given to the sink.
  uint64_t given;
  // Packets written to the file, or handed to the interface.
  uint64_t written;
  // Packets that an interface did not take: too long, too short, or without room.
  uint64_t refused;
  // The rest of a sink that failed: packets given to it before or after its failure that are in
  // no file. 0 for all other sinks, whose other numbers are counted each on its own.
  uint64_t lost;
} weir_sink_counts;

// A source that is read. Close it with weir_close.
typedef uint64_t weir_source;

// Descriptor of a packet, in native byte order.
typedef struct {
  // Offset of the frame's first byte in the region of its batch, bytes.
  uint64_t offset;
  // Time of capture, ns since 1970; INT64_MIN if there is no timestamp.
  int64_t time_ns;
  // Captured length, bytes from `offset` on.
  uint32_t captured;
  // Length on the wire without FCS and preamble, bytes. It may exceed `captured`, and in odd files be less.
  uint32_t wire_len;
  // Index of the interface in its source: see weir_interface_of.
  uint32_t interface;
  // 1 if there is no timestamp, else 0. Other bits may get a meaning: ignore them.
  uint32_t flags;
} weir_descriptor;

// Packets that weir_next gives, where they lie. All pointers hold until weir_release of `lease`.
//
// Only the bytes that descriptors name may be read: between the packets of a capture, the kernel may write.
typedef struct {
  // Handle of the batch, for weir_release and all other functions on batches.
  weir_lease lease;
  // Memory to which offsets of descriptors are relative; NULL if no packet has bytes.
  const uint8_t *region;
  // Size of the region, bytes.
  uint64_t region_len;
  // Descriptors of `len` packets, in the order of the source.
  const weir_descriptor *packets;
  // Verdicts of the filter, a bit for each packet: packet i passed if bit i % 64 of word i / 64 is 1.
  const uint64_t *verdicts;
  // Number of packets, with any verdict.
  uint32_t len;
  // Number of packets that passed the filter.
  uint32_t passed;
  // Number of the filter that judged them: 0, and 1 more with each weir_set_filter.
  uint64_t filter;
  // Link type of all packets, a number of the LINKTYPE registry of tcpdump.org, such as 1 for Ethernet; WEIR_MIXED if interfaces
  // of the source have several.
  uint32_t link_type;
  // 0.
  uint32_t reserved;
} weir_batch;

// Packets by their fate: received = passed + filtered + denied + dropped. Each number is counted
// where it happens.
typedef struct {
  // Packets that arrived at the source, whether or not there was room for them.
  uint64_t received;
  // Packets that passed the filter.
  uint64_t passed;
  // Packets that the filter rejected, here or in the kernel.
  uint64_t filtered;
  // Packets that a firewall rejected.
  uint64_t denied;
  // Packets lost at the source, for lack of room.
  uint64_t dropped_source;
  // Packets that passed and were not taken before the source was closed or stopped.
  uint64_t dropped_output;
  // Bytes on the wire of the packets that passed.
  uint64_t bytes;
  // Packets that were lost when the file was captured, as the file says; not part of `received`.
  uint64_t lost_before;
  // Batches that wait to be taken.
  uint64_t waiting;
  // Batches that are held.
  uint64_t held;
  // Times that reading stopped because `batches` were out.
  uint64_t starved;
  // 1 if the numbers are final.
  uint64_t is_final;
  // 1 if a source that was read to its end has no counter of lost packets, as pcap files have none: then 0 of `lost_before` does not say
  // that nothing was lost.
  uint64_t loss_not_recorded;
} weir_counts;

// An interface of a source.
typedef struct {
  // Link type: a number of the LINKTYPE registry of tcpdump.org, such as 1 for Ethernet.
  uint32_t link_type;
  // Largest captured length, bytes; 0 if there is none.
  uint32_t snaplen;
} weir_interface;

// The call did its work.
#define WEIR_OK 0

// The source is at its end, and all its batches were taken.
#define WEIR_END 1

// Nothing came in that time.
#define WEIR_NOTHING 2

// A name, an expression or a setting is wrong. Nothing was done.
#define WEIR_REFUSED -1

// The input or the output failed. Packets before the error were delivered.
#define WEIR_FAILED -2

// No object has this handle, or none any more.
#define WEIR_CLOSED -3

// The object is in use: by another call, or by batches that were not released.
#define WEIR_BUSY -4

// The object was made before a fork, by the parent of this process.
#define WEIR_FORKED -5

// A pointer that must lead somewhere is NULL.
#define WEIR_NULL -6

// The size of a structure is none that this library knows.
#define WEIR_SIZE -7

// There is no room for another object.
#define WEIR_FULL -8

// A mistake in weir. The objects of the call may be unusable; closing them is safe.
#define WEIR_BUG -9

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the version of the functions and structures of this library: `WEIR_ABI` of the header that it was built with.
uint32_t weir_abi(void);

// Returns the version of weir, such as "0.1.0"; never NULL.
const char *weir_version(void);

// Gives the health of the TCP conversations of an answer of weir_measure_next, and their sum. WEIR_NOTHING if the measurement has no
// WEIR_HEALTH_TCP. `sum` may be NULL.
//
// The caller promises:
// `tcp` leads to memory for its structure; `sum` is NULL or leads to memory for figures.
weir_status weir_answer_tcp(weir_text answer,
                            weir_tcp *tcp,
                            weir_tcp_figures *sum);

// Gives row `index` of the TCP conversations of an answer, with the figures of the segments of `src` (`sent`) and of `dst` (`received`).
// WEIR_NOTHING after the last row. `sent` and `received` may be NULL.
//
// The caller promises:
// `conversation` leads to memory for its structure; `sent` and `received` are NULL or lead to memory for figures.
weir_status weir_answer_conversation(weir_text answer,
                                     size_t index,
                                     weir_tcp_conversation *conversation,
                                     weir_tcp_figures *sent,
                                     weir_tcp_figures *received);

// Gives the health of the DNS transactions of an answer, and their sum. WEIR_NOTHING if the measurement has no WEIR_HEALTH_DNS. `sum` may
// be NULL.
//
// The caller promises:
// `dns` leads to memory for its structure; `sum` is NULL or leads to memory for figures.
weir_status weir_answer_dns(weir_text answer,
                            weir_dns *dns,
                            weir_dns_figures *sum);

// Gives row `index` of a list of DNS: WEIR_DNS_SERVERS, WEIR_DNS_SLOW, WEIR_DNS_FAILING or WEIR_DNS_UNANSWERED. WEIR_NOTHING after the
// last row.
//
// The caller promises:
// `row` leads to memory for figures.
weir_status weir_answer_dns_row(weir_text answer,
                                uint32_t list,
                                size_t index,
                                weir_dns_figures *row);

// Gives finding `index` of an answer. It has the findings that began or ended since the answer before; the summary also has open ones.
// WEIR_NOTHING after the last, and without WEIR_FINDINGS.
//
// The caller promises:
// `finding` leads to memory for a finding.
weir_status weir_answer_finding(weir_text answer,
                                size_t index,
                                weir_finding *finding);

// Gives a batch back to its source, in any order and from any thread. Its memory must not be read from then on.
//
// **Cost**: some atomic operations. WEIR_CLOSED if it was released before.
weir_status weir_release(weir_lease lease);

// Gives the verdicts of split number `split`, counted from 0 on in the order of weir_options.splits: bit i is 1 if packet i
// passed the filter and matches the split. The words hold until weir_release.
//
// The caller promises:
// `verdicts` leads to memory for a pointer.
weir_status weir_split(weir_lease lease,
                       uint32_t split,
                       const uint64_t **verdicts);

// Fills columns with fields of packets: of the packets from number `first` on, or if `passed` is not 0, of those among them that
// passed the filter. As many packets are written as the smallest column has room for.
//
// `written` gets the number of packets written, `next` the number of the packet after the last
// written one: `first` of the next call, or the length of the batch. Fields are read from the
// outermost IP packet. **Cost**: each frame is read once for all columns of fields, and once for
// all of offsets.
//
// The caller promises:
// `columns` leads to `count` columns, each with memory for its capacity; `written` and `next` lead to memory for a number;
// `error` is NULL or leads to memory for a handle.
weir_status weir_fill(weir_lease lease,
                      uint32_t first,
                      int32_t passed,
                      const weir_column *columns,
                      size_t count,
                      uint32_t *written,
                      uint32_t *next,
                      weir_text *error);

// Begins to measure sources, named as for weir_open; several interfaces may be named, and each queue has workers of its own.
//
// Of `options`, `filter`, `sets`, `workers`, the times, `ring`, `latency_ns` and the flags are used: `workers` is the number of
// threads that measure, and WEIR_INNER has keys read inside tunnels, while the filter judges the packets around them. Splits, limits, rules
// and WEIR_INVERT are refused. Waits until the first packets of a file are there, or the capture has begun; not for packets of a pipe.
// `options` and `measure_options` may be NULL.
//
// The caller promises:
// `names` leads to `count` texts, `options` and `measure_options` are NULL or lead to options, `measure` leads to memory for a handle,
// `error` is NULL or leads to memory for a handle.
weir_status weir_measure_open(const char *const *names,
                              size_t count,
                              const weir_options *options,
                              const weir_measure_options *measure_options,
                              weir_measure *measure,
                              weir_text *error);

// Waits at most `timeout_ns` for the next answer: each complete window, if the options name one,
// and at the end the summary. `text` gets a JSON object in one line, as `weir measure --json`
// prints it; free it with weir_text_free. weir_answer_tcp and so on give its figures as structures. `is_summary`, if not NULL, gets 1 for the summary, else
// 0.
//
// Returns WEIR_NOTHING if there was no answer, WEIR_END after the summary, and once before that
// WEIR_FAILED if a source failed: the summary then has a `fault`. While 64 windows wait to be
// taken, files are not read, and windows of interfaces are left out: the next answer counts them
// as `left_out`. **Cost**: a lock and an allocation; the text was made by the thread that reads.
//
// The caller promises:
// `text` leads to memory for a handle; `is_summary` is NULL or leads to memory for a number; `error` is NULL or leads to memory for a
// handle.
weir_status weir_measure_next(weir_measure measure,
                              uint64_t timeout_ns,
                              weir_text *text,
                              uint32_t *is_summary,
                              weir_text *error);

// Ends a measurement early. Packets that were read are measured; the answers can still be taken.
weir_status weir_measure_stop(weir_measure measure);

// Gives what the user should know although nothing failed, a line each, since the last call. WEIR_NOTHING if there is nothing.
//
// The caller promises:
// `text` leads to memory for a handle.
weir_status weir_measure_remarks(weir_measure measure,
                                 weir_text *text);

// Closes a measurement, and ends it if it goes on: answers that wait are dropped. Waits for its threads, seconds at most. WEIR_BUSY if another
// thread is in a call: end that with weir_measure_stop, and try again.
weir_status weir_measure_close(weir_measure measure);

// Begins to record sources, named as for weir_open, into a directory, which is made if it is missing. Several interfaces may be named.
//
// Of `options`, `filter`, `sets`, `ring`, `latency_ns` and the flags of captures are used; all else is refused. The directory gets a control socket:
// `weir query` and weir_open find what is only in RAM, and `weir record --status` asks for the state. Waits until the capture has begun.
// `options` and `record_options` may be NULL. **Cost**: the memory of `ram`, which is obtained now.
//
// The caller promises:
// `names` leads to `count` texts, `directory` leads to a text, `options` and `record_options` are NULL or lead to options, `record` leads to
// memory for a handle, `error` is NULL or leads to memory for a handle.
weir_status weir_record_open(const char *const *names,
                             size_t count,
                             const char *directory,
                             const weir_options *options,
                             const weir_record_options *record_options,
                             weir_record *record,
                             weir_text *error);

// Fires the trigger `name`, or all triggers if it is NULL: packets from `before_ns` before now to
// `after_ns` after now are saved. If both times are 0, each trigger saves packets of its own
// times. If files are recorded, now is the timestamp of the latest recorded packet, and the call
// waits up to a second for the first packet.
//
// `text`, if not NULL, gets the triggers as JSON: {"type":"trigger","fired":[NAME...],"refused":{NAME:WHY...}}. WEIR_REFUSED if none
// fired.
// Waits for the thread of the triggers, seconds at most.
//
// The caller promises:
// `name` is NULL or leads to a text; `text` and `error` are NULL or lead to memory for a handle.
weir_status weir_record_trigger(weir_record record,
                                const char *name,
                                uint64_t before_ns,
                                uint64_t after_ns,
                                weir_text *text,
                                weir_text *error);

// Gives the state of a recording: a JSON object in one line, as `weir record --status` prints it. **Cost**: a look at each chunk of the ring.
//
// The caller promises:
// `text` leads to memory for a handle.
weir_status weir_record_status(weir_record record,
                               weir_text *text);

// Waits at most `timeout_ns` for the next file that a trigger saves, or fails to save. `text` gets a JSON object in one line, as
// `weir record --json` prints it. WEIR_NOTHING if none came.
//
// After the end of recorded files the recording is completed, and WEIR_END follows the last saved
// file. Of more than 1024 saved files that were not asked for, the oldest are forgotten here.
//
// The caller promises:
// `text` leads to memory for a handle; `error` is NULL or leads to memory for a handle.
weir_status weir_record_next(weir_record record,
                             uint64_t timeout_ns,
                             weir_text *text,
                             weir_text *error);

// Ends a recording early: what the sources received is recorded. weir_record_next then comes to its end.
weir_status weir_record_stop(weir_record record);

// Gives what the user should know although nothing failed, a line each, since the last call. WEIR_NOTHING if there is nothing.
//
// The caller promises:
// `text` leads to memory for a handle.
weir_status weir_record_remarks(weir_record record,
                                weir_text *text);

// Ends, completes and closes a recording. `text`, if not NULL, gets its account: a JSON object in one line, as `weir record --json` prints it
// at the end. WEIR_FAILED if a source or a file failed; the recording is closed all the same, and has an account. Waits for the threads and
// the disk. WEIR_BUSY if another thread is in a call: end that with weir_record_stop, and try again.
//
// The caller promises:
// `text` and `error` are NULL or lead to memory for a handle.
weir_status weir_record_close(weir_record record,
                              weir_text *text,
                              weir_text *error);

// Opens a sink: a capture file (.pcap, else pcapng), "-" for standard output, an interface such as
// "af_packet:eth0" or "af_xdp:eth0:0", "dpdk:DEVICE", or "null", which counts packets and discards
// them. Opening a named pipe waits for its reader. A file that a source of this process reads is
// refused. So is an interface that carries the default route of this host or the login of this
// program, or is a port of a bridge: weir_sink_open_with sends there if it is named.
//
// The caller promises:
// `name` leads to a text; `sink` leads to memory for a handle; `error` is NULL or leads to memory for a handle.
weir_status weir_sink_open(const char *name, weir_sink *sink, weir_text *error);

// Opens a sink as weir_sink_open does, with settings; `options` may be NULL.
//
// The caller promises:
// `name` leads to a text; `options` is NULL or leads to options; `sink` leads to memory for a handle; `error` is NULL or leads to memory
// for a handle.
weir_status weir_sink_open_with(const char *name,
                                const weir_sink_options *options,
                                weir_sink *sink,
                                weir_text *error);

// Sends the packets of a batch whose bit in `verdicts` is 1, in their order. If `verdicts` is
// NULL, sends the packets that passed the filter. `verdicts` has a bit for each packet of the
// batch, as weir_batch.verdicts. The batch may be released after the call.
//
// The caller promises:
// `verdicts` is NULL or leads to as many words of 64 bits as hold a bit for each packet; `error` is NULL or leads to memory for a handle.
weir_status weir_send(weir_sink sink,
                      weir_lease lease,
                      const uint64_t *verdicts,
                      weir_text *error);

// Closes a sink: completes its file, or sends what is left. `counts`, if not NULL, gets the final counts. WEIR_FAILED if the sink
// failed, now or before; it is closed all the same.
//
// The caller promises:
// `counts` is NULL or leads to memory for counts; `error` is NULL or leads to memory for a handle.
weir_status weir_sink_close(weir_sink sink,
                            weir_sink_counts *counts,
                            weir_text *error);

// Opens sources, named as for the command: capture files, "-" for standard input, record
// directories; or interfaces, such as "eth0", "af_packet:eth0", "af_xdp:eth0:0" or "dpdk:DEVICE".
// Several interfaces or queues are copied and merged in time order.
//
// Waits until the first packets of a file are there, or the capture has begun; not for packets of
// a pipe, but for the writer of a named one. Threads of the library read ahead. An expression that
// makes sense for no link type of a pcapng file is refused by weir_next, after its batches.
// `options` may be NULL. On failure, and only then, `error` gets a text with the line that the
// command would print, unless it is NULL; free it with weir_text_free. This holds for each
// function with an `error`. Without room for one more object (65536 are the most, texts among
// them) `error` gets 0. Advice in a line names flags of the command; members of weir_options have
// similar names.
//
// The caller promises:
// `names` leads to `count` texts, `options` is NULL or leads to options, `source` leads to memory for a handle, `error` is NULL or
// leads to memory for a handle.
weir_status weir_open(const char *const *names,
                      size_t count,
                      const weir_options *options,
                      weir_source *source,
                      weir_text *error);

// Waits at most `timeout_ns` for the next batch, and describes it in `batch`. Release it with weir_release.
//
// Returns WEIR_NOTHING if there was no batch, WEIR_END at the end, and once before that
// WEIR_FAILED or WEIR_REFUSED if the source could not be read to its end: `error` then gets one
// line per error. Several threads may take batches of a source; each goes to one. **Cost**: a lock
// and some atomic operations, if a batch waits; a wait is a system call. Descriptors were made by
// the thread that reads.
//
// The caller promises:
// `batch` leads to memory for a batch; `error` is NULL or leads to memory for a handle.
weir_status weir_next(weir_source source, uint64_t timeout_ns, weir_batch *batch, weir_text *error);

// Gives a descriptor for poll(2): readable while a batch waits, and at the end. It belongs to the source: do not read from it or
// close it.
//
// The caller promises:
// `fd` leads to memory for a number.
weir_status weir_poll_fd(weir_source source,
                         int32_t *fd);

// Stops a source: it takes no more packets. Packets that it received can still be taken; then
// weir_next returns WEIR_END.
weir_status weir_stop(weir_source source);

// Replaces the filter between two batches, without loss. weir_batch.filter tells which filter
// judged a batch; `filter` gets the number of the new filter.
//
// Waits at most `timeout_ns` until no batch begins under the old filter. WEIR_BUSY: it is in place, and batches from before it are
// still under way. After any other failure the old filter stays.
//
// The caller promises:
// `expression` leads to a text; `filter` is NULL or leads to memory for a number; `error` is NULL or leads to memory for a handle.
weir_status weir_set_filter(weir_source source,
                            const char *expression,
                            uint64_t timeout_ns,
                            uint64_t *filter,
                            weir_text *error);

// Replaces the rules of a source that was opened with rules, between two batches, without loss. Rules of the same text keep their
// counts and rates. After a failure the old rules stay.
//
// The caller promises:
// `rules` leads to a text; `error` is NULL or leads to memory for a handle.
weir_status weir_set_rules(weir_source source,
                           const char *rules,
                           weir_text *error);

// Gives the counts of a source. While the source is read, these are the counts between two
// batches; at its end, the final counts. A thread of the library that waits for bytes of a pipe
// cannot answer: the call then takes 0.1 s and gives earlier counts. While a capture runs,
// `received` is the number of delivered and dropped packets; the final number is the kernel's own,
// unless a limit ended the capture.
//
// The caller promises:
// `counts` leads to memory for counts.
weir_status weir_counts_of(weir_source source, weir_counts *counts);

// Gives messages for the user since the last call that are not errors, a line each. WEIR_NOTHING
// if there is nothing.
//
// The caller promises:
// `text` leads to memory for a handle.
weir_status weir_remarks(weir_source source, weir_text *text);

// Describes interface number `index` of the source of a batch. WEIR_REFUSED if there is none.
//
// The caller promises:
// `interface` leads to memory for an interface.
weir_status weir_interface_of(weir_lease lease, uint32_t index, weir_interface *interface);

// Closes a source. `counts`, if not NULL, gets the final counts.
//
// A child of a fork keeps the sockets of a capture until it ends or calls exec.
// WEIR_BUSY if batches are out or another thread is in a call: release them, end the call with weir_stop, and try again.
//
// The caller promises:
// `counts` is NULL or leads to memory for counts.
weir_status weir_close(weir_source source,
                       weir_counts *counts);

// Gives the bytes of a text (UTF-8, with a 0 after them) and their number without that 0. They
// stay until weir_text_free.
//
// `length` may be NULL.
//
// The caller promises:
// `bytes` leads to memory for a pointer, `length` to memory for a number.
weir_status weir_text_read(weir_text text, const char **bytes, size_t *length);

// Frees a text. 0 is not a text, and is ignored.
weir_status weir_text_free(weir_text text);

// Binds the calling thread to one processor, numbered as in /proc/cpuinfo. Threads that it starts
// later are also bound to that processor.
//
// Threads that weir started before keep their processors. WEIR_REFUSED if there is no such processor, or this process may not use it.
// **Cost**: a system call.
weir_status weir_pin_thread(uint32_t cpu);

// Lists the processors that the calling thread may use, ascending. `count` gets their number, which may exceed `capacity`: then only
// the first `capacity` are written.
//
// The caller promises:
// `cpus` leads to memory for `capacity` numbers, and may be NULL if that is 0; `count` leads to memory for a number.
weir_status weir_cpus(uint32_t *cpus,
                      uint32_t capacity,
                      uint32_t *count);

// Finds the NUMA node on which the packets of a batch lie: the node of the page with the first
// packet's first byte.
//
// `node` gets 0 on a machine with one node, and for a batch without bytes. WEIR_FAILED if the kernel refuses to tell.
// **Cost**: a system call; ask for one batch of a source, and not for each.
//
// The caller promises:
// `node` leads to memory for a number.
weir_status weir_node_of(weir_lease lease, uint32_t *node);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WEIR_H */
