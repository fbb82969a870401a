/* Prints the largest sources and ports of each second, and of all, as lines of JSON: top_talkers SOURCE [FILTER] */
#include "weir_sample.h"

int main(int argc, char **argv)
{
    const char *keys[] = {"src", "dport"};
    weir_options options = {.size = sizeof options, .filter = argc > 2 ? argv[2] : ""};
    weir_measure_options by = {.size = sizeof by, .keys = keys, .key_count = 2, .window_ns = 1000000000};
    weir_measure measure;
    weir_text answer, error = 0;
    weir_status status;
    const char *line;

    if (argc < 2)
        return fprintf(stderr, "top_talkers SOURCE [FILTER]\n"), 2;
    sample_check(weir_measure_open((const char *const *)&argv[1], 1, &options, &by, &measure, &error), &error);
    while ((status = weir_measure_next(measure, UINT64_MAX, &answer, NULL, &error)) == WEIR_OK) {
        weir_text_read(answer, &line, NULL);
        puts(line);
        weir_text_free(answer);
    }
    /* What was good before a failure is in the answers. */
    sample_check(status, &error);
    weir_measure_close(measure);
    return 0;
}
