#include "output.h"

#include <stdlib.h>
#include <string.h>

enum { NOTE_BYTES = 48 }; /* room for the note with a twenty-digit count */

static size_t head_room(const Output *output) {
    size_t room = output->limit > NOTE_BYTES ? output->limit - NOTE_BYTES : 0;
    return room - room / 2;
}

static void add_to_tail(Output *output, const char *data, size_t size) {
    if (output->tail_room == 0) return;
    if (size > output->tail_room) { /* only its end can stay */
        output->total += size - output->tail_room;
        data += size - output->tail_room;
        size = output->tail_room;
    }
    size_t at = (output->total - head_room(output)) % output->tail_room, first = output->tail_room - at;
    if (first > size) first = size;
    memcpy(output->tail + at, data, first);
    memcpy(output->tail, data + first, size - first);
    output->total += size;
}

/* What was kept so far is too much: its head stays, the rest begins the tail. */
static bool cut(Output *output) {
    size_t head = head_room(output), held = output->head.size;
    output->tail_room = (output->limit > NOTE_BYTES ? output->limit - NOTE_BYTES : 0) / 2;
    output->tail = malloc(output->tail_room + 1);
    if (output->tail == NULL) {
        output->head.failed = true;
        return false;
    }
    if (held > head) {
        output->head.size = output->total = head;
        add_to_tail(output, output->head.data + head, held - head);
        output->total = held;
    }
    return true;
}

void output_add(Output *output, const char *data, size_t size) {
    if (output->tail == NULL && output->head.size + size <= output->limit) {
        bytes_add(&output->head, data, size);
        output->total += size;
        return;
    }
    if (output->head.failed || (output->tail == NULL && !cut(output))) return;
    size_t missing = head_room(output) > output->head.size ? head_room(output) - output->head.size : 0;
    if (missing > size) missing = size;
    bytes_add(&output->head, data, missing);
    output->total += missing;
    size_t after = output->total + (size - missing);
    add_to_tail(output, data + missing, size - missing);
    output->total = after;
}

Bytes output_result(Output *output, bool *was_cut) {
    Bytes result = output->head;
    *was_cut = output->tail != NULL;
    if (*was_cut) {
        size_t beyond = output->total - result.size, kept = beyond < output->tail_room ? beyond : output->tail_room;
        size_t start = kept == 0 || beyond <= kept ? 0 : beyond % output->tail_room;
        bytes_say(&result, "\n[... %zu bytes left out ...]\n", beyond - kept);
        size_t first = output->tail_room - start < kept ? output->tail_room - start : kept;
        bytes_add(&result, output->tail + start, first);
        bytes_add(&result, output->tail, kept - first);
        if (result.size > output->limit) result.size = output->limit;
        free(output->tail);
    }
    *output = (Output){0};
    return result;
}
