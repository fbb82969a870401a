/* Support for comparisons: DPDK's classifiers, rte_acl and rte_lpm, over keys and over frames. */
#include <rte_config.h>

#include <rte_acl.h>
#include <rte_byteorder.h>
#include <rte_errno.h>
#include <rte_ip.h>
#include <rte_lpm.h>
#include <rte_prefetch.h>
#include <rte_vect.h>

#include <string.h>

/* Packets that one call classifies at most. */
#define MOST 256

/* Fields as rte_acl reads them, in network order: the first of one byte, the others in words of four. */
struct key {
	uint8_t proto;
	uint8_t unused[3];
	uint32_t src, dst;
	uint16_t sport, dport;
};

/* A rule, in host order. */
struct weir_acl_rule {
	uint32_t src, dst;
	uint8_t src_bits, dst_bits, proto, unused;
	uint16_t sport[2], dport[2];
};

struct weir_count {
	uint64_t packets, bytes;
};

RTE_ACL_RULE_DEF(five, 5);

/* Fields at these offsets of a key (`in_frame` 0) or of an Ethernet frame of IPv4 without options. */
static void define(struct rte_acl_field_def defs[5], int in_frame)
{
	const uint32_t key[5] = { 0, 4, 8, 12, 14 }, frame[5] = { 23, 26, 30, 34, 36 };
	const uint8_t sizes[5] = { 1, 4, 4, 2, 2 }, words[5] = { 0, 1, 2, 3, 3 };
	const uint8_t types[5] = { RTE_ACL_FIELD_TYPE_BITMASK, RTE_ACL_FIELD_TYPE_MASK, RTE_ACL_FIELD_TYPE_MASK,
		RTE_ACL_FIELD_TYPE_RANGE, RTE_ACL_FIELD_TYPE_RANGE };

	for (int i = 0; i < 5; i++)
		defs[i] = (struct rte_acl_field_def){ .type = types[i], .size = sizes[i], .field_index = i,
			.input_index = words[i], .offset = (in_frame ? frame : key)[i] };
}

/* Builds a context; the first rule that matches has the highest priority. NULL: rte_errno says why. */
struct rte_acl_ctx *weir_acl_new(const char *name, const struct weir_acl_rule *rules, uint32_t count, int in_frame, size_t most)
{
	struct rte_acl_param param = { .name = name, .socket_id = SOCKET_ID_ANY, .rule_size = RTE_ACL_RULE_SZ(5), .max_rule_num = count };
	struct rte_acl_config config = { .num_categories = 1, .num_fields = 5, .max_size = most };
	struct rte_acl_ctx *context;
	int failed = 0;

	rte_vect_set_max_simd_bitwidth(RTE_VECT_SIMD_512);
	context = rte_acl_create(&param);
	if (context == NULL)
		return NULL;
	for (uint32_t i = 0; i < count && failed == 0; i++) {
		const struct weir_acl_rule *from = &rules[i];
		struct five rule = { .data = { .category_mask = 1, .priority = count - i, .userdata = i + 1 } };

		rule.field[0].value.u8 = from->proto;
		rule.field[0].mask_range.u8 = 0xff;
		rule.field[1].value.u32 = from->src;
		rule.field[1].mask_range.u32 = from->src_bits;
		rule.field[2].value.u32 = from->dst;
		rule.field[2].mask_range.u32 = from->dst_bits;
		rule.field[3].value.u16 = from->sport[0];
		rule.field[3].mask_range.u16 = from->sport[1];
		rule.field[4].value.u16 = from->dport[0];
		rule.field[4].mask_range.u16 = from->dport[1];
		failed = rte_acl_add_rules(context, (const struct rte_acl_rule *)&rule, 1);
	}
	define(config.defs, in_frame);
	if (failed == 0)
		failed = rte_acl_build(context, &config);
	if (failed == 0)
		return context;
	rte_acl_free(context);
	rte_errno = -failed;
	return NULL;
}

void weir_acl_free(struct rte_acl_ctx *context)
{
	rte_acl_free(context);
}

/* Classifies keys in batches. `results`: number of the first rule that matches, from 1 on; 0 for none. */
void weir_acl_keys(const struct rte_acl_ctx *context, const struct key *keys, uint64_t count, uint32_t batch, uint32_t *results)
{
	const uint8_t *data[MOST];

	for (uint64_t at = 0; at < count; at += batch) {
		uint32_t n = RTE_MIN((uint64_t)batch, count - at);

		for (uint32_t i = 0; i < n; i++)
			data[i] = (const uint8_t *)&keys[at + i];
		rte_acl_classify(context, data, results + at, n, 1);
	}
}

/* Whether the frame is what the context can read: IPv4 without options, no later fragment, TCP or UDP up to the ports and flags. */
static inline int is_plain(const uint8_t *frame, uint32_t len)
{
	uint32_t claimed = frame[16] << 8 | frame[17];

	return len >= 48 && frame[12] == 8 && frame[13] == 0 && frame[14] == 0x45 && (frame[20] & 0x1f) == 0 && frame[21] == 0 &&
		((frame[23] == 6 && claimed >= 34) || (frame[23] == 17 && claimed >= 24));
}

/* Starts to fetch the headers of a batch of frames; a prefetch behind the last frame has no effect. */
static inline void prefetch_frames(const uint8_t *frames, uint32_t len, uint32_t batch)
{
	for (uint32_t i = 0; i < batch; i++)
		rte_prefetch0(frames + (uint64_t)i * len);
}

/* From frames of one length to verdicts and counters. `passes`: 1 for rules that let pass, and in front of them the default.
 * `counts`: packets and bytes by rule, in the same order. `all`: what was dropped, and what passed. Returns the frames that it cannot read. */
uint64_t weir_acl_frames(const struct rte_acl_ctx *context, const uint8_t *frames, uint32_t len, uint64_t count, uint32_t batch,
	const uint8_t *passes, struct weir_count *counts, struct weir_count all[2])
{
	const uint8_t *data[MOST];
	uint32_t results[MOST];
	uint64_t others = 0;

	for (uint64_t at = 0; at < count; at += batch) {
		uint32_t n = RTE_MIN((uint64_t)batch, count - at), plain = 0;

		prefetch_frames(frames + (at + n) * len, len, n);
		for (uint32_t i = 0; i < n; i++) {
			data[plain] = frames + (at + i) * len;
			plain += is_plain(data[plain], len);
		}
		others += n - plain;
		rte_acl_classify(context, data, results, plain, 1);
		for (uint32_t i = 0; i < plain; i++) {
			struct weir_count *count = &counts[results[i]], *verdict = &all[passes[results[i]]];

			count->packets++;
			count->bytes += len;
			verdict->packets++;
			verdict->bytes += len;
		}
	}
	return others;
}

/* A table of `count` prefixes, all with the next hop 1. NULL: rte_errno says why. */
struct rte_lpm *weir_lpm_new(const uint32_t *prefixes, const uint8_t *bits, uint32_t count, uint32_t groups)
{
	struct rte_lpm_config config = { .max_rules = count, .number_tbl8s = groups };
	struct rte_lpm *table = rte_lpm_create("weir", SOCKET_ID_ANY, &config);

	for (uint32_t i = 0; table != NULL && i < count; i++) {
		int failed = rte_lpm_add(table, prefixes[i], bits[i], 1);

		if (failed < 0) {
			rte_lpm_free(table);
			rte_errno = -failed;
			return NULL;
		}
	}
	return table;
}

void weir_lpm_free(struct rte_lpm *table)
{
	rte_lpm_free(table);
}

/* Looks addresses up in bulks. Returns the number of those with a prefix. */
uint64_t weir_lpm_addresses(const struct rte_lpm *table, const uint32_t *addresses, uint64_t count, uint32_t batch)
{
	uint32_t hops[MOST];
	uint64_t found = 0;

	for (uint64_t at = 0; at < count; at += batch) {
		uint32_t n = RTE_MIN((uint64_t)batch, count - at);

		rte_lpm_lookup_bulk(table, addresses + at, hops, n);
		for (uint32_t i = 0; i < n; i++)
			found += (hops[i] & RTE_LPM_LOOKUP_SUCCESS) != 0;
	}
	return found;
}

/* From frames of one length to verdicts: packets of TCP with a source in the table are dropped. `all`: what was dropped, and what passed. */
uint64_t weir_lpm_frames(const struct rte_lpm *table, const uint8_t *frames, uint32_t len, uint64_t count, uint32_t batch,
	struct weir_count all[2])
{
	const uint8_t *data[MOST];
	uint32_t addresses[MOST], hops[MOST];
	uint64_t others = 0;

	for (uint64_t at = 0; at < count; at += batch) {
		uint32_t n = RTE_MIN((uint64_t)batch, count - at), plain = 0;

		prefetch_frames(frames + (at + n) * len, len, n);
		for (uint32_t i = 0; i < n; i++) {
			data[plain] = frames + (at + i) * len;
			memcpy(&addresses[plain], data[plain] + 26, 4);
			addresses[plain] = rte_be_to_cpu_32(addresses[plain]);
			plain += is_plain(data[plain], len);
		}
		others += n - plain;
		rte_lpm_lookup_bulk(table, addresses, hops, plain);
		for (uint32_t i = 0; i < plain; i++) {
			struct weir_count *verdict = &all[!((hops[i] & RTE_LPM_LOOKUP_SUCCESS) && data[i][23] == 6)];

			verdict->packets++;
			verdict->bytes += len;
		}
	}
	return others;
}
