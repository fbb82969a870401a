/* Shows the ten names that DNS clients asked for most often: dns_names SOURCE
 *
 * Reads packets where they lie, on every link type: the library tells where the payload begins. Letters are shown as small ones, bytes
 * that are no letters, digits, - or _ as \DDD. */
#include "weir_sample.h"
#include <ctype.h>
#include <string.h>

#define LONGEST 1100
#define ROOM 1024
#define UDP 17

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

/* Notes the names of the questions of a batch: UDP to port 53. */
static void look(const weir_batch *batch)
{
    static uint8_t protocols[ROOM];
    static uint16_t ports[ROOM];
    static int32_t payloads[ROOM];
    const weir_column columns[] = {
        {WEIR_PROTOCOL, ROOM, protocols}, {WEIR_DST_PORT, ROOM, ports}, {WEIR_PAYLOAD_OFFSET, ROOM, payloads}};
    char name[LONGEST];

    for (uint32_t first = 0, next, rows; first < batch->len; first = next) {
        weir_text error = 0;
        sample_check(weir_fill(batch->lease, first, 0, columns, 3, &rows, &next, &error), &error);
        for (uint32_t i = 0; i < rows; i++) {
            const weir_descriptor *packet = &batch->packets[first + i];
            const uint8_t *frame = batch->region + packet->offset;
            int is_asked = protocols[i] == UDP && ports[i] == 53 && payloads[i] >= 0;
            if (is_asked && name_of(frame, packet->captured, (size_t)payloads[i], name))
                note(name);
        }
    }
}

int main(int argc, char **argv)
{
    weir_batch batch;
    int faults = 0;

    if (argc != 2)
        return fprintf(stderr, "dns_names SOURCE\n"), 2;
    weir_source source = sample_open(argv[1], "");
    while (sample_next(source, &batch, &faults)) {
        look(&batch);
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
