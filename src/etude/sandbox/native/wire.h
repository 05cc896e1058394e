/* The control socket: frames in, frames out. docs/sandbox-protocol.md is the law; a client that breaks it gets an error, and this process ends. */
#pragma once
#include <stdint.h>
#include <sys/uio.h>

#include "json.h"

enum {
    HELLO = 1, SPEC, READY, OK, ERROR, OUTPUT, EXIT, TREE, SPENT,
    RUN, CANCEL, READ, WRITE, LIST, REMOVE, EXPORT, EXEC, STDIN, SIGNAL, RESIZE, CREDIT, STAT, GET, PUT, CONNECT, FREEZE, GRANT
};
enum { MOST_FRAME_BYTES = 64 << 20, HEADER_BYTES = 9, COUNT_BYTES = 4 };
enum { LARGE_BYTES = 128 << 10 }; /* a request as large as this is mapped apart, and its memory goes back when it has been served */

typedef struct {
    uint8_t kind;
    uint32_t stream;
    Json head;
    char *payload; /* allocated; whoever takes it sets it to NULL */
    const char *blob; /* its raw part */
    size_t blob_size;
} Frame;

void wire_open(int fd);
int wire_fd(void);

/* One frame out of a whole one in memory: the spec's. False: malformed. */
bool frame_read(Frame *frame, char *payload, size_t size);

/* Take what the socket holds and serve each whole frame. Ends the process when the client has gone. */
void wire_listen(void (*serve)(Frame *frame));

/* Send one frame: a head and up to three raw parts. Too large a one goes as ERROR OutputLimit. `fd`: a descriptor to pass, or -1. */
void wire_send(uint8_t kind, uint32_t stream, const Bytes *head, const struct iovec *parts, int count, int fd);
void wire_say(uint8_t kind, uint32_t stream, const char *head); /* without a raw part */
