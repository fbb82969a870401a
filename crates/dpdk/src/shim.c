/*
 * Parts of DPDK that Rust cannot call: inline functions, macros, and functions on structures whose layout depends on
 * DPDK's version. Each function returns 0 or a positive count, or a negative errno.
 */
#define _GNU_SOURCE
#include "shim.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ether.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_version.h>

/* DPDK's log messages, to be put into errors. If there is no room for all, the beginning is kept, because it has the cause. */
static FILE *log_stream;
static char log_text[8192];
static size_t log_len;

/* Called with the stream's lock held. */
static ssize_t log_write(void *cookie, const char *bytes, size_t len)
{
	size_t fits = RTE_MIN(len, sizeof(log_text) - log_len);

	(void)cookie;
	memcpy(log_text + log_len, bytes, fits);
	log_len += fits;
	return len;
}

/* Moves the log messages to `to`; returns their length in bytes. */
size_t weir_log_take(char *to, size_t len)
{
	size_t n;

	/* The log could not be made, so DPDK was not started either. */
	if (log_stream == NULL)
		return 0;
	flockfile(log_stream);
	n = RTE_MIN(len, log_len);
	memcpy(to, log_text, n);
	log_len = 0;
	funlockfile(log_stream);
	return n;
}

/* Key whose destructor gives a thread's number back when the thread ends. */
static pthread_key_t leaving;

static void leave(void *unused)
{
	(void)unused;
	rte_thread_unregister();
}

int weir_init(int argc, char **argv)
{
	cookie_io_functions_t functions = { .write = log_write };

	log_stream = fopencookie(NULL, "w", functions);
	if (log_stream == NULL || pthread_key_create(&leaving, leave) != 0)
		return -ENOMEM;
	rte_openlog_stream(log_stream);
	if (rte_eal_init(argc, argv) < 0)
		return -rte_errno;
	/* The folder is for files by which other processes find this one. It is empty, and would stay. */
	rmdir(rte_eal_get_runtime_dir());
	return 0;
}

const char *weir_version(void)
{
	return rte_version();
}

int weir_error(void)
{
	return rte_errno;
}

/* Gives this thread a number of DPDK, and so a cache of mbufs, which are then reused while they are warm. */
static inline void enter(void)
{
	static __thread int tried;

	if (likely(rte_lcore_id() != LCORE_ID_ANY || tried))
		return;
	tried = 1;
	if (rte_thread_register() == 0)
		pthread_setspecific(leaving, &leaving);
}

void weir_pool_free(struct weir_pool *pool)
{
	rte_mempool_free(pool->mempool);
	rte_memzone_free(pool->zone);
}

/* Makes `count` mbufs for frames of up to `room` bytes, and `slots` slots of `slot_len` bytes. */
int weir_pool_create(const char *name, unsigned int count, unsigned int cache, uint32_t room, unsigned int slots,
		     size_t slot_len, int socket, struct weir_pool *pool)
{
	struct rte_pktmbuf_pool_private about = {
		.mbuf_data_room_size = RTE_PKTMBUF_HEADROOM + room,
	};
	unsigned int size = sizeof(struct rte_mbuf) + about.mbuf_priv_size + about.mbuf_data_room_size;
	size_t page, least, align;
	ssize_t bytes;
	int result;

	/* Frames begin at a cache line. */
	RTE_BUILD_BUG_ON((sizeof(struct rte_mbuf) + RTE_PKTMBUF_HEADROOM) % RTE_CACHE_LINE_SIZE != 0);
	memset(pool, 0, sizeof(*pool));
	pool->mempool = rte_mempool_create_empty(name, count, size, cache, sizeof(about), socket, 0);
	if (pool->mempool == NULL)
		return -rte_errno;
	result = rte_mempool_set_ops_byname(pool->mempool, "ring_mp_mc", NULL);
	if (result < 0)
		goto failed;
	rte_pktmbuf_pool_init(pool->mempool, &about);
	/* One zone for all memory, because a pool that reserves its own may take several. */
	result = rte_mempool_get_page_size(pool->mempool, &page);
	if (result < 0)
		goto failed;
	bytes = rte_mempool_op_calc_mem_size_default(pool->mempool, count, page ? rte_bsf32(page) : 0, &least, &align);
	if (bytes < 0) {
		result = bytes;
		goto failed;
	}
	bytes = RTE_ALIGN_CEIL(bytes, page ? page : RTE_CACHE_LINE_SIZE);
	pool->zone = rte_memzone_reserve_aligned(name, bytes + slots * slot_len, socket, 0, RTE_MAX(align, page));
	if (pool->zone == NULL) {
		result = -rte_errno;
		goto failed;
	}
	result = rte_mempool_populate_virt(pool->mempool, pool->zone->addr, bytes, page ? page : pool->zone->hugepage_sz,
					   NULL, NULL);
	if (result >= 0 && (unsigned int)result < count)
		result = -ENOMEM;
	if (result < 0)
		goto failed;
	rte_mempool_obj_iter(pool->mempool, rte_pktmbuf_init, NULL);
	pool->area = pool->zone->addr;
	pool->area_len = bytes + slots * slot_len;
	pool->slots_at = bytes;
	pool->slot_len = slot_len;
	pool->room = room;
	return 0;

failed:
	weir_pool_free(pool);
	return result;
}

int weir_port_about(uint16_t port, struct weir_about *about)
{
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);

	if (result < 0)
		return result;
	memset(about, 0, sizeof(*about));
	about->rx_queues = info.max_rx_queues;
	about->tx_queues = info.max_tx_queues;
	about->if_index = info.if_index;
	about->socket = rte_eth_dev_socket_id(port);
	if (rte_eth_dev_get_mtu(port, &about->mtu) < 0)
		about->mtu = 0;
	snprintf(about->driver, sizeof(about->driver), "%s", info.driver_name);
	return 0;
}

/* Sets up the queues of a port, without starting it. `spread` returns whether the device spreads flows over the queues. */
int weir_port_set_up(uint16_t port, uint16_t receiving, uint16_t sending, uint16_t *descriptors,
		     struct weir_pool *const *pools, int *spread)
{
	struct rte_eth_dev_info info;
	struct rte_eth_conf conf;
	uint16_t sent = *descriptors, queue;
	int socket = rte_eth_dev_socket_id(port);
	int result = rte_eth_dev_info_get(port, &info);

	if (result < 0)
		return result;
	memset(&conf, 0, sizeof(conf));
	conf.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP);
	*spread = receiving > 1 && conf.rx_adv_conf.rss_conf.rss_hf != 0;
	if (*spread)
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
	else
		conf.rx_adv_conf.rss_conf.rss_hf = 0;
	/* A frame that is larger than an mbuf arrives in several. */
	conf.rxmode.offloads = info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
	result = rte_eth_dev_configure(port, receiving, sending, &conf);
	if (result < 0)
		return result;
	result = rte_eth_dev_adjust_nb_rx_tx_desc(port, descriptors, &sent);
	for (queue = 0; queue < receiving && result >= 0; queue++)
		result = rte_eth_rx_queue_setup(port, queue, *descriptors, socket, NULL, pools[queue]->mempool);
	for (queue = 0; queue < sending && result >= 0; queue++)
		result = rte_eth_tx_queue_setup(port, queue, sent, socket, NULL);
	return result < 0 ? result : 0;
}

/* Closes a port and removes its device. */
void weir_port_close(uint16_t port)
{
	struct rte_eth_dev_info info;
	struct rte_device *device = rte_eth_dev_info_get(port, &info) < 0 ? NULL : info.device;

	rte_eth_dev_stop(port);
	rte_eth_dev_close(port);
	if (device != NULL)
		rte_dev_remove(device);
}

int weir_port_stats(uint16_t port, struct weir_stats *to)
{
	struct rte_eth_stats from;
	int result = rte_eth_stats_get(port, &from);

	if (result < 0)
		return result;
	*to = (struct weir_stats){ from.ipackets, from.opackets, from.ibytes, from.obytes,
				   from.imissed, from.ierrors, from.oerrors, from.rx_nombuf };
	return 0;
}

/* Whether the frame lies in the pool's area, in one piece that has no other owner. */
static inline int is_plain(const struct weir_pool *pool, const struct rte_mbuf *mbuf)
{
	return mbuf->pool == pool->mempool && mbuf->nb_segs == 1 && RTE_MBUF_DIRECT(mbuf) &&
	       rte_mbuf_refcnt_read(mbuf) == 1;
}

static void copy(uint8_t *to, const struct rte_mbuf *mbuf)
{
	for (; mbuf != NULL; mbuf = mbuf->next) {
		memcpy(to, rte_pktmbuf_mtod(mbuf, const void *), mbuf->data_len);
		to += mbuf->data_len;
	}
}

/* Copies a frame into one mbuf or slot of the pool, and gives its own mbufs back. */
static void __rte_noinline put_together(const struct weir_pool *pool, struct rte_mbuf *mbuf, uint64_t free_slots,
					struct rte_mbuf **mbufs, struct weir_place *places, struct weir_received *found)
{
	struct rte_mbuf *fresh = mbuf->pkt_len <= pool->room ? rte_pktmbuf_alloc(pool->mempool) : NULL;
	uint8_t *to = NULL;

	free_slots &= ~found->slots;
	if (fresh != NULL) {
		fresh->data_len = mbuf->pkt_len;
		fresh->pkt_len = mbuf->pkt_len;
		to = rte_pktmbuf_mtod(fresh, uint8_t *);
		mbufs[found->mbufs++] = fresh;
	} else if (free_slots != 0 && mbuf->pkt_len <= pool->slot_len) {
		unsigned int slot = __builtin_ctzll(free_slots);

		found->slots |= UINT64_C(1) << slot;
		to = pool->area + pool->slots_at + slot * pool->slot_len;
	}
	if (to != NULL) {
		copy(to, mbuf);
		places[found->packets++] = (struct weir_place){ to - pool->area, mbuf->pkt_len };
	} else {
		found->dropped++;
	}
	rte_pktmbuf_free(mbuf);
}

/* Largest number of packets in one call of the driver: not more than there are slots. */
#define BURST 64u
/* A call that returns fewer packets has emptied the queue. */
#define FULL 32

/*
 * Receives up to `max` packets; `free_slots` are the slots that may be taken. Once a packet has taken a slot, `large` is
 * set. From then on, no more packets are received than slots are free, so no packet that fits in a slot is ever lost
 * because slots are missing.
 */
void weir_receive(uint16_t port, uint16_t queue, const struct weir_pool *pool, uint64_t free_slots, uint32_t max,
		  int *large, struct rte_mbuf **mbufs, struct weir_place *places, struct weir_received *found)
{
	uint16_t got;

	enter();
	memset(found, 0, sizeof(*found));
	do {
		struct rte_mbuf *burst[BURST];
		uint32_t packets = found->packets, kept = found->mbufs;
		uint32_t ask = RTE_MIN(max, BURST);
		uint16_t i;

		if (unlikely(*large))
			ask = RTE_MIN(ask, (uint32_t)__builtin_popcountll(free_slots & ~found->slots));
		got = ask == 0 ? 0 : rte_eth_rx_burst(port, queue, burst, ask);
		max -= got;
		for (i = 0; i < got; i++) {
			struct rte_mbuf *mbuf = burst[i];

			/* If a device removes VLAN tags, some drivers do not put them back. */
			if (unlikely(mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED))
				rte_vlan_insert(&mbuf);
			if (likely(is_plain(pool, mbuf))) {
				mbufs[kept++] = mbuf;
				places[packets].at = rte_pktmbuf_mtod(mbuf, uint8_t *) - pool->area;
				places[packets++].len = mbuf->pkt_len;
			} else {
				found->packets = packets;
				found->mbufs = kept;
				put_together(pool, mbuf, free_slots, mbufs, places, found);
				packets = found->packets;
				kept = found->mbufs;
			}
		}
		found->packets = packets;
		found->mbufs = kept;
		*large |= found->slots != 0;
	} while (got >= FULL && max > 0);
}

/* Gives back mbufs from weir_receive. They are plain, so they need no check before they are reused. */
void weir_give_back(const struct weir_pool *pool, struct rte_mbuf **mbufs, uint32_t count)
{
	rte_mempool_put_bulk(pool->mempool, (void **)mbufs, count);
}

/* Sends copies of `count` frames, at most BURST. Returns the number that the device took; -ENOBUFS if no mbufs are free. */
int weir_send(uint16_t port, uint16_t queue, const struct weir_pool *pool, const uint8_t *const *frames,
	      const uint32_t *lens, uint32_t count)
{
	struct rte_mbuf *burst[BURST];
	uint16_t i, sent;

	enter();
	count = RTE_MIN(count, BURST);
	if (rte_pktmbuf_alloc_bulk(pool->mempool, burst, count) != 0)
		return -ENOBUFS;
	for (i = 0; i < count; i++) {
		memcpy(rte_pktmbuf_mtod(burst[i], void *), frames[i], lens[i]);
		burst[i]->data_len = lens[i];
		burst[i]->pkt_len = lens[i];
	}
	sent = rte_eth_tx_burst(port, queue, burst, count);
	if (sent < count)
		rte_pktmbuf_free_bulk(burst + sent, count - sent);
	return sent;
}
