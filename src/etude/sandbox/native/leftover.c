#include "leftover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    Source source; /* first: a Source of this kind is a Leftover */
    int file;      /* -1: none */
    size_t drained;
} Leftover;

static int pipes;
static char piece[1 << 16];

/* A command must not lead it elsewhere. */
static int open_file(const char *path) {
    struct stat found;
    int fd = path == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0644);
    if (fd < 0 || (fstat(fd, &found) == 0 && S_ISREG(found.st_mode))) return fd;
    close(fd);
    return -1;
}

/* Of the file, which the other stream of the command may share. */
static off_t size_of(const Leftover *left) {
    struct stat found;
    return left->file < 0 || fstat(left->file, &found) < 0 ? MOST_LEFT_KEPT : found.st_size;
}

static void keep(const Leftover *left, const char *data, size_t size) {
    off_t room = MOST_LEFT_KEPT - size_of(left);
    if (room <= 0) return;
    if (write(left->file, data, size < (size_t)room ? size : (size_t)room) < 0) return; /* a full disk: the child goes on, what it says is lost */
}

void leftover_take(Source *source, const char *path) {
    if (source->fd < 0) return;
    Leftover *left = pipes < MOST_LEFT_PIPES ? calloc(1, sizeof *left) : NULL;
    if (left == NULL) return source_close(source);
    source_watch(source, 0);
    left->source = (Source){.fd = source->fd, .kind = SOURCE_LEFTOVER};
    source->fd = -1;
    left->file = open_file(path);
    pipes++;
    if (size_of(left) == 0) keep(left, LEFT_HEAD, strlen(LEFT_HEAD));
    source_watch(&left->source, EPOLLIN);
}

void leftover_drain(Source *source) {
    Leftover *left = (Leftover *)source;
    ssize_t got = read(source->fd, piece, sizeof piece);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got > 0 && (left->drained += (size_t)got) < MOST_LEFT_DRAINED) return keep(left, piece, (size_t)got);
    source_close(source);
    if (left->file >= 0) close(left->file);
    pipes--;
    free(left);
}
