/* Passes packets by rules, a line each: firewall RULES SOURCE SINK
 *
 * A line has an IPv4 source address and a protocol number; a packet that one of them names is dropped, all others pass. */
#include "weir_sample.h"
#include <string.h>

#define ROOM 4096
#define MOST_RULES 65536

/* A rule as one number: protocol above the address. */
static uint64_t rules[MOST_RULES];
static size_t rule_count;

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void read_rules(const char *path)
{
    unsigned a, b, c, d, protocol;
    FILE *file = fopen(path, "r");
    if (!file) {
        perror(path);
        exit(2);
    }
    while (rule_count < MOST_RULES && fscanf(file, "%u.%u.%u.%u %u", &a, &b, &c, &d, &protocol) == 5)
        rules[rule_count++] = (uint64_t)protocol << 32 | (uint64_t)(a << 24 | b << 16 | c << 8 | d);
    if (!feof(file)) {
        fprintf(stderr, "weir: %s: rule %zu is not an address and protocol\n", path, rule_count + 1);
        exit(2);
    }
    fclose(file);
    qsort(rules, rule_count, sizeof *rules, ascending);
}

int main(int argc, char **argv)
{
    static uint32_t sources[ROOM];
    static uint8_t versions[ROOM], protocols[ROOM];
    const weir_column columns[] = {
        {WEIR_IP_VERSION, ROOM, versions}, {WEIR_SRC4, ROOM, sources}, {WEIR_PROTOCOL, ROOM, protocols}};
    weir_batch batch;
    weir_sink sink;
    weir_sink_counts sent;
    weir_counts counts;
    weir_text error = 0;
    int faults = 0;
    uint64_t *mask = NULL, denied = 0;
    size_t words = 0;

    if (argc != 4)
        return fprintf(stderr, "firewall RULES SOURCE SINK\n"), 2;
    read_rules(argv[1]);
    weir_source source = sample_open(argv[2], "");
    sample_check(weir_sink_open(argv[3], &sink, &error), &error);
    while (sample_next(source, &batch, &faults)) {
        size_t needed = (batch.len + 63) / 64;
        if (needed > words)
            mask = realloc(mask, (words = needed) * sizeof *mask);
        memset(mask, 0, needed * sizeof *mask);
        for (uint32_t first = 0, next, written; first < batch.len; first = next) {
            sample_check(weir_fill(batch.lease, first, 0, columns, 3, &written, &next, &error), &error);
            for (uint32_t i = 0; i < written; i++) {
                uint64_t key = (uint64_t)protocols[i] << 32 | sources[i];
                int drops = versions[i] == 4 && bsearch(&key, rules, rule_count, sizeof key, ascending);
                denied += drops;
                mask[(first + i) / 64] |= (uint64_t)!drops << (first + i) % 64;
            }
        }
        sample_check(weir_send(sink, batch.lease, mask, &error), &error);
        weir_release(batch.lease);
    }
    sample_check(weir_sink_close(sink, &sent, &error), &error);
    weir_close(source, &counts);
    printf("%llu received, %llu passed, %llu denied\n", (unsigned long long)counts.received,
           (unsigned long long)sent.written, (unsigned long long)denied);
    free(mask);
    return faults;
}
