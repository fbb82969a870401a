/* Writes the packets around each that matches: capture_on_trigger SOURCE TRIGGER OUT
 *
 * Of each packet that matches the expression TRIGGER, the 100 before it and the 100 behind it are written too. Batches are held until
 * no later packet can ask for theirs. */
#include "weir_sample.h"

#define AROUND 100
#define MOST_HELD 4096

struct held {
    weir_batch batch;
    uint64_t first; /* number of its first packet */
    uint64_t *chosen;
};

static struct held held[MOST_HELD];
static size_t holds;

/* Chooses packets from number `from` up to `to`, as far as they came. */
static void choose(uint64_t from, uint64_t to)
{
    for (size_t i = 0; i < holds; i++)
        for (uint64_t at = from > held[i].first ? from - held[i].first : 0;
             at < held[i].batch.len && held[i].first + at <= to; at++)
            held[i].chosen[at / 64] |= UINT64_C(1) << at % 64;
}

/* Writes and releases the batches that end before packet `number`. */
static void write_before(uint64_t number, weir_sink sink)
{
    size_t done = 0;
    for (; done < holds && held[done].first + held[done].batch.len <= number; done++) {
        weir_text error = 0;
        sample_check(weir_send(sink, held[done].batch.lease, held[done].chosen, &error), &error);
        weir_release(held[done].batch.lease);
        free(held[done].chosen);
    }
    holds -= done;
    for (size_t i = 0; done && i < holds; i++)
        held[i] = held[i + done];
}

int main(int argc, char **argv)
{
    uint64_t received = 0, triggers = 0, until = 0; /* packets before `until` are chosen as they come */
    weir_sink_counts written;
    weir_source source;
    weir_sink sink;
    weir_text error = 0;
    int faults = 0;

    if (argc != 4)
        return fprintf(stderr, "capture_on_trigger SOURCE TRIGGER OUT\n"), 2;
    const char *trigger = argv[2], *name = argv[1];
    weir_options options = {.size = sizeof options, .splits = &trigger, .split_count = 1, .batches = MOST_HELD};
    sample_check(weir_open(&name, 1, &options, &source, &error), &error);
    sample_check(weir_sink_open(argv[3], &sink, &error), &error);
    while (sample_next(source, &held[holds].batch, &faults)) {
        struct held *now = &held[holds++];
        const uint64_t *matches;
        now->first = received;
        now->chosen = calloc((now->batch.len + 63) / 64, sizeof *now->chosen);
        received += now->batch.len;
        if (until > now->first)
            choose(now->first, until - 1);
        sample_check(weir_split(now->batch.lease, 0, &matches), &error);
        for (uint32_t i = 0; i < now->batch.len; i++) {
            if (!(matches[i / 64] >> i % 64 & 1))
                continue;
            uint64_t at = now->first + i;
            triggers++;
            choose(at > AROUND ? at - AROUND : 0, at + AROUND);
            until = at + AROUND + 1;
        }
        write_before(received > AROUND ? received - AROUND : 0, sink);
    }
    write_before(received, sink);
    sample_check(weir_sink_close(sink, &written, &error), &error);
    weir_close(source, NULL);
    printf("%llu received, %llu triggers, %llu written\n", (unsigned long long)received,
           (unsigned long long)triggers, (unsigned long long)written.written);
    return faults;
}
