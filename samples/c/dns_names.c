/* Shows the ten names that DNS clients asked for most often: dns_names SOURCE
 *
 * Reads packets where they lie: UDP to port 53, behind Ethernet with at most one VLAN tag. Letters are shown as small ones, bytes
 * that are no letters, digits, - or _ as \DDD. */
#include "weir_sample.h"
#include <ctype.h>
#include <string.h>

#define LONGEST 1100

struct asked {
    char *name;
    uint64_t times;
};

static struct asked *names;
static size_t count, room;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct asked *)a)->name, ((const struct asked *)b)->name);
}

static int by_times(const void *a, const void *b)
{
    const struct asked *x = a, *y = b;
    if (x->times != y->times)
        return x->times < y->times ? 1 : -1;
    return strcmp(x->name, y->name);
}

/* Merges equal names. */
static void merge(void)
{
    size_t kept = 0;
    qsort(names, count, sizeof *names, by_name);
    for (size_t i = 0; i < count; i++) {
        if (kept && !strcmp(names[kept - 1].name, names[i].name)) {
            names[kept - 1].times += names[i].times;
            free(names[i].name);
        } else {
            names[kept++] = names[i];
        }
    }
    count = kept;
}

static void note(const char *name)
{
    if (count == room) {
        merge();
        if (2 * count >= room)
            names = realloc(names, (room = room ? 2 * room : 1024) * sizeof *names);
    }
    names[count++] = (struct asked){strcpy(malloc(strlen(name) + 1), name), 1};
}

/* Payload of UDP to port 53 in a frame of Ethernet; 0 if it is none. */
static size_t question(const uint8_t *frame, size_t captured)
{
    size_t at = 12;
    if (captured >= 18 && frame[12] == 0x81 && frame[13] == 0)
        at = 16;
    if (captured < at + 2 + 48)
        return 0;
    int type = frame[at] << 8 | frame[at + 1];
    at += 2;
    if (type == 0x0800 && frame[at] >> 4 == 4 && frame[at + 9] == 17 && !((frame[at + 6] & 0x1f) | frame[at + 7]))
        at += (frame[at] & 15) * 4;
    else if (type == 0x86dd && frame[at] >> 4 == 6 && frame[at + 6] == 17)
        at += 40;
    else
        return 0;
    return captured >= at + 8 && frame[at + 2] == 0 && frame[at + 3] == 53 ? at + 8 : 0;
}

/* Writes the name of the first question; 0 if there is none or it is cut. Source: RFC 1035, section 4. */
static int name_of(const uint8_t *frame, size_t captured, size_t at, char *name)
{
    size_t length = 0;
    if (captured < at + 13 || frame[at + 2] >> 7 || !(frame[at + 4] | frame[at + 5]))
        return 0;
    for (at += 12; at < captured && frame[at];) {
        size_t label = frame[at++];
        if (label > 63 || captured < at + label || length > 4 * 255)
            return 0;
        if (length)
            name[length++] = '.';
        for (; label; label--, at++) {
            if (isalnum(frame[at]) || frame[at] == '-' || frame[at] == '_')
                name[length++] = (char)tolower(frame[at]);
            else
                length += (size_t)sprintf(name + length, "\\%03u", frame[at]);
            if (length > 4 * 255)
                return 0;
        }
    }
    name[length] = 0;
    return at < captured && length;
}

int main(int argc, char **argv)
{
    char name[LONGEST];
    weir_batch batch;
    int faults = 0;

    if (argc != 2)
        return fprintf(stderr, "dns_names SOURCE\n"), 2;
    weir_source source = sample_open(argv[1], "");
    while (sample_next(source, &batch, &faults)) {
        for (uint32_t i = 0; i < batch.len && batch.link_type == 1; i++) {
            const uint8_t *frame = batch.region + batch.packets[i].offset;
            size_t captured = batch.packets[i].captured, at = question(frame, captured);
            if (at && name_of(frame, captured, at, name))
                note(name);
        }
        weir_release(batch.lease);
    }
    weir_close(source, NULL);
    merge();
    qsort(names, count, sizeof *names, by_times);
    for (size_t i = 0; i < 10 && i < count; i++)
        printf("%s %llu\n", names[i].name, (unsigned long long)names[i].times);
    printf("%zu names\n", count);
    for (size_t i = 0; i < count; i++)
        free(names[i].name);
    free(names);
    return faults;
}
