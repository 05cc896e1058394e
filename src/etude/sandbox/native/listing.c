#include "listing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault.h"
#include "files.h"
#include "head.h"
#include "paths.h"
#include "walk.h"

typedef struct {
    uint32_t stream;
    const char *path;
    long long most, so_far; /* entries, or bytes */
    Bytes head, contents;
} Listing;

void answer_walk(uint32_t stream, const char *path, int result) {
    if (result == 1) return; /* the visitor has answered */
    if (errno == EMLINK)
        answer_error(stream, "UserError", "%s: folders nest deeper than %d", path, DEEPEST_FOLDER);
    else
        answer_errno(stream, path, errno);
}

static Step list_one(void *state, const Found *found) {
    Listing *listing = state;
    if (++listing->so_far > listing->most) {
        answer_error(listing->stream, "OutputLimit", "%s holds more than %lld entries; list a folder below it", listing->path, listing->most);
        return WALK_REFUSED;
    }
    bytes_say(&listing->head, listing->so_far == 1 ? "[" : ",[");
    json_add_text(&listing->head, found->path, strlen(found->path));
    bytes_say(&listing->head, ",\"%s\",%lld,%u]", kind_of(found->status->st_mode), (long long)found->status->st_size,
              found->status->st_mode & 07777);
    return WALK_ON;
}

/* Up to `room` bytes of an open file onto the end; false: it can't be read or there is no memory, errno says which. */
static bool add_contents(Bytes *contents, int fd, size_t room) {
    for (ssize_t got = 1; got > 0 && room > 0; room -= (size_t)got) {
        size_t piece = room < 65536 ? room : 65536;
        if (!bytes_reserve(contents, piece)) {
            errno = ENOMEM;
            return false;
        }
        got = read(fd, contents->data + contents->size, piece);
        if (got < 0) return false;
        contents->size += (size_t)got;
    }
    return true;
}

static Step export_one(void *state, const Found *found) {
    Listing *listing = state;
    if (!S_ISREG(found->status->st_mode)) return WALK_ON;
    int fd = openat(found->folder, found->name, TO_READ);
    if (fd < 0) return WALK_ON; /* removed since it was listed, or closed to its own owner */
    struct stat status;
    size_t before = listing->contents.size;
    bool good = fstat(fd, &status) == 0;
    if (good && !S_ISREG(status.st_mode)) { /* exchanged since */
        close(fd);
        return WALK_ON;
    }
    good = good && add_contents(&listing->contents, fd, (size_t)(listing->most - listing->so_far) + 1);
    int code = errno;
    close(fd);
    if (!good) {
        answer_errno(listing->stream, found->path, code);
        return WALK_REFUSED;
    }
    size_t size = listing->contents.size - before;
    listing->so_far += (long long)size;
    if (listing->so_far > listing->most) {
        answer_error(listing->stream, "OutputLimit", "the files under %s are over %lld bytes", listing->path, listing->most);
        return WALK_REFUSED;
    }
    bytes_say(&listing->head, listing->head.data[listing->head.size - 1] == '[' ? "[" : ",[");
    json_add_text(&listing->head, found->path, strlen(found->path));
    bytes_say(&listing->head, ",%zu]", size);
    return WALK_ON;
}

static void serve(const Frame *frame, const char *opening, bool recursive, const char *limit, Visit *visit) {
    char *path = need_path(frame);
    if (path == NULL) return;
    Listing listing = {.stream = frame->stream, .path = path, .most = need_integer(frame, limit)};
    if (listing.most < 0) listing.most = 0;
    if (listing.most > MOST_FRAME_BYTES) listing.most = MOST_FRAME_BYTES; /* no answer holds more */
    bytes_say(&listing.head, "%s", opening);
    int fd = listing.head.failed ? -1 : folder_open(frame->stream, path);
    if (fd >= 0) {
        int result = walk(fd, recursive, visit, &listing);
        bytes_say(&listing.head, "]}");
        if (result == 0)
            wire_send(OK, frame->stream, &listing.head, &(struct iovec){listing.contents.data, listing.contents.size}, 1, -1);
        else
            answer_walk(frame->stream, path, result);
    } else if (listing.head.failed) {
        answer_error(frame->stream, "InfraError", "no memory for a list of %s", path);
    }
    bytes_free(&listing.head);
    bytes_free(&listing.contents);
    free(path);
}

void serve_list(const Frame *frame) {
    serve(frame, "{\"entries\":[", need_boolean(frame, "recursive"), "max_entries", list_one);
}

void serve_export(const Frame *frame) { serve(frame, "{\"files\":[", true, "max_bytes", export_one); }
