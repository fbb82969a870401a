/* Support for comparisons: a plain receive loop in C, and a device with known packets. */
#include "shim.h"

#include <string.h>

/* The loop of DPDK's own examples: receives at least `packets` packets and frees them. Returns their number. */
uint64_t weir_bench_loop(uint16_t port, uint16_t queue, uint64_t packets)
{
	struct rte_mbuf *burst[64];
	uint64_t received = 0;

	while (received < packets) {
		uint16_t got = rte_eth_rx_burst(port, queue, burst, 64);

		rte_pktmbuf_free_bulk(burst, got);
		received += got;
	}
	return received;
}

/* Frames stored one behind another, each behind its length (u32, native order). */
struct weir_frames {
	const uint8_t *next;
	uint64_t left;
};

static uint16_t fill(uint16_t port, uint16_t queue, struct rte_mbuf *burst[], uint16_t got, uint16_t max, void *from)
{
	struct weir_frames *frames = from;
	uint16_t filled = RTE_MIN((uint64_t)got, frames->left), i;

	(void)port, (void)queue, (void)max;
	for (i = 0; i < filled; i++) {
		uint32_t len;

		memcpy(&len, frames->next, sizeof(len));
		memcpy(rte_pktmbuf_mtod(burst[i], void *), frames->next + sizeof(len), len);
		frames->next += sizeof(len) + len;
		burst[i]->data_len = len;
		burst[i]->pkt_len = len;
	}
	rte_pktmbuf_free_bulk(burst + filled, got - filled);
	frames->left -= filled;
	return filled;
}

/* From now on, received packets get the contents of these frames. After the last frame, all packets are dropped. */
const void *weir_bench_fill(uint16_t port, uint16_t queue, struct weir_frames *frames)
{
	return rte_eth_add_rx_callback(port, queue, fill, frames);
}

int weir_bench_end_fill(uint16_t port, uint16_t queue, const void *callback)
{
	return rte_eth_remove_rx_callback(port, queue, callback);
}
