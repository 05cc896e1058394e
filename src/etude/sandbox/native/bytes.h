/* A piece of memory that grows. A failed allocation is remembered, not reported: whoever hands the bytes on asks `failed` once. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef struct {
    char *data;
    size_t size, room;
    bool failed;
} Bytes;

bool bytes_reserve(Bytes *bytes, size_t more); /* false: no memory, and `failed` is set */
void bytes_add(Bytes *bytes, const void *data, size_t size);
void bytes_say(Bytes *bytes, const char *format, ...) __attribute__((format(printf, 2, 3)));
void bytes_free(Bytes *bytes);
