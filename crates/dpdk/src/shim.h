/* Structures that shim.c shares with the Rust side; raw.rs declares the same in Rust. */
#ifndef WEIR_DPDK_SHIM_H
#define WEIR_DPDK_SHIM_H

#include <rte_config.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_memzone.h>

/* Memory of mbufs, and slots for frames that do not fit in an mbuf; all in one zone. */
struct weir_pool {
	struct rte_mempool *mempool;
	const struct rte_memzone *zone;
	uint8_t *area;
	size_t area_len;
	/* Offset of the first slot in the area, and size of a slot, bytes. */
	size_t slots_at;
	size_t slot_len;
	/* Bytes of a frame that fit in an mbuf. */
	uint32_t room;
};

/* Offset of a frame in the area, and its length, bytes. */
struct weir_place {
	uint32_t at;
	uint32_t len;
};

/* Result of one receive call. */
struct weir_received {
	/* Number of places and mbufs that were written. */
	uint32_t packets;
	uint32_t mbufs;
	/* Number of packets for which there was no room. */
	uint32_t dropped;
	uint32_t unused;
	/* Slots that were taken, a bit for each. */
	uint64_t slots;
};

struct weir_about {
	uint16_t rx_queues;
	uint16_t tx_queues;
	uint16_t mtu;
	uint16_t unused;
	uint32_t if_index;
	int32_t socket;
	char driver[64];
};

struct weir_stats {
	uint64_t ipackets, opackets, ibytes, obytes, imissed, ierrors, oerrors, rx_nombuf;
};

#endif
