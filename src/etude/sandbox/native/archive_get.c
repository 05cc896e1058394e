#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "archive.h"
#include "fault.h"
#include "head.h"
#include "listing.h"
#include "paths.h"
#include "walk.h"

enum { HEAD_BYTES = 1 << 20 }; /* many small entries fill a frame too */

typedef struct {
    uint32_t stream;
    const char *path;
    long long left; /* bytes of contents that may still come */
    Bytes head, contents;
    bool any; /* whether the head has an entry */
} Export;

static void flush(Export *export, bool last) {
    bytes_say(&export->head, "],\"last\":%s}", last ? "true" : "false");
    wire_send(TREE, export->stream, &export->head, &(struct iovec){export->contents.data, export->contents.size}, 1, -1);
    export->head.size = export->contents.size = 0;
    export->any = false;
    bytes_say(&export->head, "{\"entries\":[");
}

static void add_entry(Export *export, const Found *found, size_t size, const char *target) {
    const struct stat *status = found->status;
    bytes_say(&export->head, export->any ? ",[" : "[");
    export->any = true;
    json_add_text(&export->head, found->path, strlen(found->path));
    long long mtime_ns = status->st_mtim.tv_sec * 1000000000LL + status->st_mtim.tv_nsec;
    bytes_say(&export->head, ",\"%s\",%u,%lld,%zu,", kind_of(status->st_mode), status->st_mode & 07777, mtime_ns, size);
    json_add_text(&export->head, target, strlen(target));
    bytes_add(&export->head, "]", 1);
}

/* Up to one chunk of an open file onto the contents; its size, or -1 and errno. */
static ssize_t add_chunk(Export *export, int fd) {
    if (!bytes_reserve(&export->contents, CHUNK_BYTES)) {
        errno = ENOMEM;
        return -1;
    }
    size_t size = 0;
    for (ssize_t got = 1; got > 0 && size < CHUNK_BYTES; size += (size_t)got) {
        got = read(fd, export->contents.data + export->contents.size + size, CHUNK_BYTES - size);
        if (got < 0) return -1;
    }
    export->contents.size += size;
    return (ssize_t)size;
}

static Step send_contents(Export *export, const Found *found, int fd) {
    for (bool first = true;; first = false) {
        if (export->contents.size + CHUNK_BYTES > TREE_BYTES || export->head.size > HEAD_BYTES) flush(export, false);
        ssize_t size = add_chunk(export, fd);
        if (size < 0) {
            answer_errno(export->stream, found->path, errno);
            return WALK_REFUSED;
        }
        if ((export->left -= size) < 0) {
            answer_error(export->stream, "OutputLimit", "the files under %s are over the limit", export->path);
            return WALK_REFUSED;
        }
        if (first || size > 0) add_entry(export, found, (size_t)size, "");
        if (size < CHUNK_BYTES) return WALK_ON;
    }
}

static Step send_one(void *state, const Found *found) {
    Export *export = state;
    if (S_ISREG(found->status->st_mode)) {
        int fd = openat(found->folder, found->name, TO_READ);
        if (fd < 0) return WALK_ON; /* gone since it was listed, or closed to its own owner */
        struct stat status;
        Step step = WALK_ON;
        if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) step = send_contents(export, found, fd);
        close(fd);
        return step;
    }
    char target[4097];
    ssize_t size = 0;
    if (S_ISLNK(found->status->st_mode)) {
        size = readlinkat(found->folder, found->name, target, sizeof target - 1);
        if (size < 0) return WALK_ON; /* gone */
        target[size] = '\0';
    } else if (!S_ISDIR(found->status->st_mode)) {
        return WALK_ON;
    }
    if (export->head.size > HEAD_BYTES) flush(export, false);
    add_entry(export, found, 0, S_ISLNK(found->status->st_mode) ? target : "");
    return WALK_ON;
}

void serve_get(const Frame *frame) {
    char *path = need_path(frame);
    if (path == NULL) return;
    Export export = {.stream = frame->stream, .path = path, .left = need_integer(frame, "max_bytes")};
    int fd = folder_open(frame->stream, path);
    if (fd >= 0) {
        bytes_say(&export.head, "{\"entries\":[");
        int result = walk(fd, true, send_one, &export);
        if (result == 0)
            flush(&export, true);
        else
            answer_walk(frame->stream, path, result);
    }
    bytes_free(&export.head);
    bytes_free(&export.contents);
    free(path);
}
