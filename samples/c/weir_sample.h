/* What the samples share: the line of an error, and a source whose batches are taken one by one. */
#ifndef WEIR_SAMPLE_H
#define WEIR_SAMPLE_H

#include <stdio.h>
#include <stdlib.h>
#include <weir.h>

/* Prints why a call failed, and ends the program with the exit code of the weir command: 2 if it was refused, 1 if it failed. */
static inline void sample_check(weir_status status, const weir_text *error)
{
    const char *line = "weir failed";
    if (status >= 0)
        return;
    if (*error)
        weir_text_read(*error, &line, NULL);
    fprintf(stderr, "weir: %s\n", line);
    exit(status == WEIR_REFUSED ? 2 : 1);
}

static inline weir_source sample_open(const char *name, const char *filter)
{
    weir_options options = {.size = sizeof options, .filter = filter};
    weir_source source;
    weir_text error = 0;
    sample_check(weir_open(&name, 1, &options, &source, &error), &error);
    return source;
}

/* Takes the next batch; 0 at the end. What could not be read is told, and the end comes behind it. */
static inline int sample_next(weir_source source, weir_batch *batch, int *faults)
{
    weir_text error = 0;
    weir_status status;
    while ((status = weir_next(source, UINT64_C(1000000000), batch, &error)) == WEIR_NOTHING)
        ;
    if (status < 0) {
        const char *line = "weir failed";
        weir_text_read(error, &line, NULL);
        fprintf(stderr, "weir: %s\n", line);
        weir_text_free(error);
        *faults = 1;
    }
    return status == WEIR_OK;
}

#endif
