/* Bounded memory of a stream: all of it up to a limit, beyond that its head and its tail with a note between them. */
#pragma once
#include "bytes.h"

typedef struct {
    size_t limit, total; /* bytes that may be kept; bytes that came */
    Bytes head;
    char *tail; /* a ring; NULL while everything fits */
    size_t tail_room;
} Output;

void output_add(Output *output, const char *data, size_t size);
Bytes output_result(Output *output, bool *cut); /* allocated; the output is empty afterwards. `failed` without memory */
