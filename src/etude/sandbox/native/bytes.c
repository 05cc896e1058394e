#include "bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool bytes_reserve(Bytes *bytes, size_t more) {
    if (bytes->failed) return false;
    if (bytes->room - bytes->size >= more) return true;
    size_t room = bytes->room ? bytes->room : 256;
    while (room - bytes->size < more) room += room;
    char *data = realloc(bytes->data, room);
    if (data == NULL) {
        bytes->failed = true;
        return false;
    }
    bytes->data = data;
    bytes->room = room;
    return true;
}

void bytes_add(Bytes *bytes, const void *data, size_t size) {
    if (size == 0 || !bytes_reserve(bytes, size)) return;
    memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
}

void bytes_say(Bytes *bytes, const char *format, ...) {
    va_list values, again;
    va_start(values, format);
    va_copy(again, values);
    int size = vsnprintf(NULL, 0, format, values);
    if (size >= 0 && bytes_reserve(bytes, (size_t)size + 1)) {
        vsnprintf(bytes->data + bytes->size, (size_t)size + 1, format, again);
        bytes->size += (size_t)size;
    }
    va_end(again);
    va_end(values);
}

void bytes_free(Bytes *bytes) {
    free(bytes->data);
    *bytes = (Bytes){0};
}
