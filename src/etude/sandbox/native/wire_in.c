#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fault.h"
#include "wire.h"

/* What has come of the frame that is still on its way. */
static struct {
    char header[HEADER_BYTES];
    size_t have; /* bytes of header and payload so far */
    uint32_t length, stream;
    char *payload; /* NULL while the header is not whole, and where there was no memory: then it is let pass and refused */
} coming;

static uint32_t get_u32(const char *from) {
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return ntohl(value);
}

bool frame_read(Frame *frame, char *payload, size_t size) {
    if (size < COUNT_BYTES) return false;
    size_t head = get_u32(payload);
    if (head > size - COUNT_BYTES) return false;
    frame->payload = payload;
    frame->head = json_object(payload + COUNT_BYTES, head);
    frame->blob = payload + COUNT_BYTES + head;
    frame->blob_size = size - COUNT_BYTES - head;
    return frame->head.at != NULL;
}

/* Large requests are mapped apart (`mallopt` in runner.c): commands that start meanwhile needn't copy them, nor be charged for them. */
static void spare_children(char *data, size_t size) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = ((uintptr_t)data + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)data + size) / page * page;
    if (end > start) madvise((void *)start, end - start, MADV_DONTFORK);
}

static void begin(void) {
    coming.length = get_u32(coming.header);
    coming.stream = get_u32(coming.header + 5);
    uint8_t kind = (uint8_t)coming.header[4];
    if (kind < HELLO || kind > GRANT) broken("unknown frame type %u", kind);
    if (coming.length > MOST_FRAME_BYTES) broken("frame of %u bytes is over the limit of %d", coming.length, MOST_FRAME_BYTES);
    coming.payload = malloc(coming.length ? coming.length : 1);
    if (coming.payload != NULL && coming.length > LARGE_BYTES) spare_children(coming.payload, coming.length);
}

static void finish(void (*serve)(Frame *frame)) {
    Frame frame = {.kind = (uint8_t)coming.header[4], .stream = coming.stream};
    char *payload = coming.payload;
    size_t length = coming.length;
    memset(&coming, 0, sizeof coming);
    if (payload == NULL) {
        answer_error(frame.stream, "InfraError", "no memory for a request of %zu bytes", length);
        return;
    }
    if (!frame_read(&frame, payload, length)) broken("the payload of a frame of type %u can't be read", frame.kind);
    serve(&frame);
    free(frame.payload);
}

static size_t take(const char *data, size_t size) {
    size_t taken = 0;
    if (coming.have < HEADER_BYTES) {
        taken = HEADER_BYTES - coming.have < size ? HEADER_BYTES - coming.have : size;
        memcpy(coming.header + coming.have, data, taken);
        coming.have += taken;
        if (coming.have < HEADER_BYTES) return taken;
        begin();
    }
    size_t at = coming.have - HEADER_BYTES, more = coming.length - at < size - taken ? coming.length - at : size - taken;
    if (coming.payload != NULL) memcpy(coming.payload + at, data + taken, more);
    coming.have += more;
    return taken + more;
}

static bool is_whole(void) { return coming.have >= HEADER_BYTES && coming.have - HEADER_BYTES == coming.length; }

/* The rest of a large payload goes straight to its place. */
static char *direct(size_t *room) {
    if (coming.have < HEADER_BYTES || coming.payload == NULL) return NULL;
    *room = coming.length - (coming.have - HEADER_BYTES);
    return coming.payload + (coming.have - HEADER_BYTES);
}

void wire_listen(void (*serve)(Frame *frame)) {
    char piece[8192];
    size_t room = sizeof piece;
    char *to = direct(&room);
    ssize_t got = recv(wire_fd(), to != NULL ? to : piece, room, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) _exit(0); /* the client's end: the kernel kills the rest with process 1 */
    if (to != NULL) {
        coming.have += (size_t)got;
        if (is_whole()) finish(serve);
        return;
    }
    for (size_t at = 0; at < (size_t)got;) {
        at += take(piece + at, (size_t)got - at);
        if (is_whole()) finish(serve);
    }
}
