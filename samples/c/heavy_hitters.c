/* Shows the ten IPv4 sources with the most bytes: heavy_hitters SOURCE [FILTER] */
#include "weir_sample.h"

#define ROOM 4096

/* A source, in a table of open addressing that doubles when it is half full. */
struct talker {
    uint64_t packets, bytes;
    uint32_t address;
};

static struct talker *table;
static size_t places, used;

static struct talker *find(uint32_t address)
{
    size_t at = (uint32_t)(address * 0x9e3779b1u) & (places - 1);
    while (table[at].packets && table[at].address != address)
        at = (at + 1) & (places - 1);
    return &table[at];
}

static void grow(void)
{
    struct talker *old = table;
    size_t count = places;
    places = places ? places * 2 : 1024;
    table = calloc(places, sizeof *table);
    for (size_t i = 0; i < count; i++)
        if (old[i].packets)
            *find(old[i].address) = old[i];
    free(old);
}

static int by_bytes(const void *a, const void *b)
{
    const struct talker *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->address < y->address ? -1 : x->address > y->address;
}

int main(int argc, char **argv)
{
    static uint32_t sources[ROOM], lengths[ROOM];
    static uint8_t versions[ROOM];
    const weir_column columns[] = {
        {WEIR_IP_VERSION, ROOM, versions}, {WEIR_SRC4, ROOM, sources}, {WEIR_WIRE_LEN, ROOM, lengths}};
    weir_batch batch;
    int faults = 0;

    if (argc < 2)
        return fprintf(stderr, "heavy_hitters SOURCE [FILTER]\n"), 2;
    weir_source source = sample_open(argv[1], argc > 2 ? argv[2] : "");
    grow();
    while (sample_next(source, &batch, &faults)) {
        for (uint32_t first = 0, written; first < batch.len;) {
            weir_text error = 0;
            sample_check(weir_fill(batch.lease, first, 1, columns, 3, &written, &first, &error), &error);
            for (uint32_t i = 0; i < written; i++) {
                if (versions[i] != 4)
                    continue;
                if (2 * used >= places)
                    grow();
                struct talker *talker = find(sources[i]);
                used += !talker->packets;
                talker->address = sources[i];
                talker->packets++;
                talker->bytes += lengths[i];
            }
        }
        weir_release(batch.lease);
    }
    weir_close(source, NULL);
    qsort(table, places, sizeof *table, by_bytes);
    for (size_t i = 0; i < 10 && i < used; i++) {
        uint32_t at = table[i].address;
        printf("%u.%u.%u.%u %llu packets %llu bytes\n", at >> 24, at >> 16 & 255, at >> 8 & 255, at & 255,
               (unsigned long long)table[i].packets, (unsigned long long)table[i].bytes);
    }
    printf("%zu sources\n", used);
    free(table);
    return faults;
}
