/* Counts packets by destination port, of TCP and UDP together: count_by_port SOURCE [FILTER] */
#include "weir_sample.h"

#define ROOM 4096

static uint64_t packets[65536];

static int by_packets(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (packets[x] != packets[y])
        return packets[x] < packets[y] ? 1 : -1;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    static uint16_t ports[ROOM];
    static uint32_t order[65536];
    const weir_column columns[] = {{WEIR_DST_PORT, ROOM, ports}};
    weir_batch batch;
    weir_counts counts;
    int faults = 0;

    if (argc < 2)
        return fprintf(stderr, "count_by_port SOURCE [FILTER]\n"), 2;
    weir_source source = sample_open(argv[1], argc > 2 ? argv[2] : "");
    while (sample_next(source, &batch, &faults)) {
        for (uint32_t first = 0, written; first < batch.len;) {
            weir_text error = 0;
            sample_check(weir_fill(batch.lease, first, 1, columns, 1, &written, &first, &error), &error);
            for (uint32_t i = 0; i < written; i++)
                packets[ports[i]]++;
        }
        weir_release(batch.lease);
    }
    weir_close(source, &counts);
    packets[0] = 0; /* packets without a port */
    for (uint32_t port = 0; port < 65536; port++)
        order[port] = port;
    qsort(order, 65536, sizeof *order, by_packets);
    for (int i = 0; i < 10 && packets[order[i]]; i++)
        printf("%u %llu\n", order[i], (unsigned long long)packets[order[i]]);
    printf("%llu received, %llu matched\n", (unsigned long long)counts.received, (unsigned long long)counts.passed);
    return faults;
}
