#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "archive.h"
#include "fault.h"
#include "files.h"
#include "head.h"
#include "paths.h"

/* Modes and times of folders are set last: what is put into them changes the one and may need the other. */
typedef struct Folder {
    struct Folder *next;
    mode_t mode;
    struct timespec mtime;
    char path[];
} Folder;

typedef struct Put {
    struct Put *next;
    uint32_t stream;
    char *root, *path; /* where all of it goes; the file that is open */
    Folder *folders;
    int fd;            /* of that file, or -1 */
    Spot spot;         /* and its place */
    char fresh[32];
    mode_t mode;
    struct timespec mtime;
    bool failed; /* the rest is only read over */
    Bytes error; /* what is answered then, after the last frame */
} Put;

typedef struct {
    char *path, *kind, *target;
    mode_t mode;
    struct timespec mtime;
    size_t size;
} Entry;

static Put *puts_open;

bool put_uses(uint32_t stream) {
    for (Put *put = puts_open; put != NULL; put = put->next)
        if (put->stream == stream) return true;
    return false;
}

/* Where all of it goes: a folder, made if it is missing; a file or link in its place is replaced. */
static bool make_root(const Put *put) {
    Spot spot = spot_find(put->stream, put->root, true);
    struct stat status;
    bool good = spot.folder >= 0;
    if (good && spot.name != NULL) {
        bool exists = fstatat(spot.folder, spot.name, &status, AT_SYMLINK_NOFOLLOW) == 0;
        if (exists && !S_ISDIR(status.st_mode)) good = unlinkat(spot.folder, spot.name, 0) == 0;
        if (good && !(exists && S_ISDIR(status.st_mode))) good = mkdirat(spot.folder, spot.name, 0755) == 0;
        if (!good) answer_errno(put->stream, put->root, errno);
    }
    spot_leave(&spot);
    return good;
}

void serve_put(const Frame *frame) {
    Put *put = calloc(1, sizeof *put);
    if (put == NULL) give_up("PUT", ENOMEM);
    *put = (Put){.next = puts_open, .stream = frame->stream, .fd = -1, .spot = {.folder = -1}};
    puts_open = put;
    keep_errors(&put->error);
    put->root = need_path(frame);
    put->failed = put->root == NULL || !make_root(put);
    keep_errors(NULL);
}

static void refuse(Put *put, const char *path, int code) {
    if (code != 0) answer_errno(put->stream, path, code);
    put->failed = true;
}

/* The file that came so far is whole: to its place with it. */
static void close_file(Put *put) {
    if (put->fd < 0) return;
    struct timespec times[2] = {put->mtime, put->mtime};
    bool good = !put->failed && fchmod(put->fd, put->mode) == 0 && futimens(put->fd, times) == 0 &&
                renameat(put->spot.folder, put->fresh, put->spot.folder, put->spot.name) == 0;
    int code = errno;
    if (!good) unlinkat(put->spot.folder, put->fresh, 0);
    if (!good && !put->failed) refuse(put, put->path, code);
    close(put->fd);
    spot_leave(&put->spot);
    free(put->path);
    put->fd = -1;
    put->path = NULL;
}

static bool is_within(const char *path) { /* plain components only: no empty one, no . and .., no leading slash */
    for (const char *at = path;; at++) {
        size_t size = strcspn(at, "/");
        if (size == 0 || (at[0] == '.' && (size == 1 || (size == 2 && at[1] == '.')))) return false;
        at += size;
        if (*at == '\0') return true;
    }
}

static Spot place(Put *put, const char *path, struct stat *status) {
    char *whole = NULL;
    Spot spot = {.folder = -1};
    if (!is_within(path))
        answer_error(put->stream, "UserError", "%s: not a plain path below %s", path, put->root);
    else if (asprintf(&whole, "%s/%s", put->root, path) < 0)
        answer_error(put->stream, "InfraError", "no memory for a path");
    else
        spot = spot_named(put->stream, whole, true);
    free(whole);
    if (spot.folder < 0) refuse(put, path, 0);
    else if (fstatat(spot.folder, spot.name, status, AT_SYMLINK_NOFOLLOW) < 0) status->st_mode = 0;
    return spot;
}

static bool spares_folder(Put *put, const char *path, const struct stat *status) {
    if (!S_ISDIR(status->st_mode)) return true;
    answer_error(put->stream, "UserError", "%s: a folder is not replaced by something else", path);
    refuse(put, path, 0);
    return false;
}

static void put_folder(Put *put, const Entry *entry, const Spot *spot, const struct stat *status) {
    if (status->st_mode != 0 && !S_ISDIR(status->st_mode) && unlinkat(spot->folder, spot->name, 0) < 0) {
        refuse(put, entry->path, errno);
        return;
    }
    if (!S_ISDIR(status->st_mode) && mkdirat(spot->folder, spot->name, 0755) < 0) {
        refuse(put, entry->path, errno);
        return;
    }
    Folder *folder = malloc(sizeof *folder + strlen(entry->path) + 1);
    if (folder == NULL) {
        refuse(put, entry->path, ENOMEM);
        return;
    }
    *folder = (Folder){put->folders, entry->mode, entry->mtime};
    strcpy(folder->path, entry->path);
    put->folders = folder;
}

static void put_link(Put *put, const Entry *entry, const Spot *spot) {
    char fresh[32];
    struct timespec times[2] = {entry->mtime, entry->mtime};
    int fd = fresh_file(spot->folder, &fresh); /* for a name that nobody has; the link is then made under it */
    if (fd < 0) {
        refuse(put, entry->path, errno);
        return;
    }
    close(fd);
    bool good = unlinkat(spot->folder, fresh, 0) == 0 && symlinkat(entry->target, spot->folder, fresh) == 0 &&
                utimensat(spot->folder, fresh, times, AT_SYMLINK_NOFOLLOW) == 0 &&
                renameat(spot->folder, fresh, spot->folder, spot->name) == 0;
    int code = errno;
    if (!good) unlinkat(spot->folder, fresh, 0);
    if (!good) refuse(put, entry->path, code);
}

static void open_file(Put *put, const Entry *entry, Spot *spot) {
    put->path = strdup(entry->path);
    put->fd = put->path == NULL ? -1 : fresh_file(spot->folder, &put->fresh);
    if (put->fd < 0) {
        refuse(put, entry->path, put->path == NULL ? ENOMEM : errno);
        free(put->path);
        put->path = NULL;
        return;
    }
    put->mode = entry->mode & 0777;
    put->mtime = entry->mtime;
    put->spot = *spot;
    *spot = (Spot){.folder = -1};
}

static void put_entry(Put *put, const Entry *entry, const char *data) {
    bool is_file = strcmp(entry->kind, "file") == 0;
    if (!(is_file && put->fd >= 0 && strcmp(put->path, entry->path) == 0)) {
        close_file(put);
        if (put->failed) return;
        struct stat status;
        Spot spot = place(put, entry->path, &status);
        if (spot.folder >= 0) {
            if (strcmp(entry->kind, "dir") == 0)
                put_folder(put, entry, &spot, &status);
            else if (spares_folder(put, entry->path, &status))
                is_file ? open_file(put, entry, &spot) : put_link(put, entry, &spot);
        }
        spot_leave(&spot);
    }
    if (is_file && !put->failed && !write_all(put->fd, data, entry->size)) refuse(put, entry->path, errno);
}

static void dress_folders(Put *put) {
    for (Folder *folder = put->folders; folder != NULL && !put->failed; folder = folder->next) {
        struct stat status;
        Spot spot = place(put, folder->path, &status);
        int fd = spot.folder < 0 ? -1 : openat(spot.folder, spot.name, TO_LIST);
        struct timespec times[2] = {folder->mtime, folder->mtime};
        if (!put->failed && (fd < 0 || futimens(fd, times) < 0 || fchmod(fd, folder->mode & 0777) < 0)) refuse(put, folder->path, errno);
        if (fd >= 0) close(fd);
        spot_leave(&spot);
    }
}

static void end(Put *put) {
    close_file(put);
    dress_folders(put);
    keep_errors(NULL);
    if (!put->failed)
        wire_say(OK, put->stream, "{}");
    else if (put->error.size > 0)
        wire_send(ERROR, put->stream, &put->error, NULL, 0, -1);
    else
        answer_error(put->stream, "InfraError", "no memory");
    bytes_free(&put->error);
    for (Put **link = &puts_open; *link != NULL; link = &(*link)->next) {
        if (*link != put) continue;
        *link = put->next;
        break;
    }
    while (put->folders != NULL) {
        Folder *next = put->folders->next;
        free(put->folders);
        put->folders = next;
    }
    free(put->root);
    free(put);
}

/* One entry of the list; false: refused, and answered. Whatever is not as the protocol has it ends the process. */
static bool read_entry(Put *put, Json item, Entry *entry) {
    Json rest = json_inside(item, '['), part[6] = {0};
    for (int n = 0; n < 6; n++)
        if (!json_next(&rest, &part[n])) broken("a TREE entry has fewer than six parts");
    long long mode, mtime_ns, size;
    if (!json_integer(part[2], &mode) || !json_integer(part[3], &mtime_ns) || !json_integer(part[4], &size) || size < 0)
        broken("a TREE entry's mode, time and size must be whole numbers");
    entry->mode = (mode_t)mode;
    entry->size = (size_t)size;
    entry->mtime.tv_sec = mtime_ns / 1000000000 - (mtime_ns % 1000000000 < 0);
    entry->mtime.tv_nsec = mtime_ns % 1000000000 + (mtime_ns % 1000000000 < 0 ? 1000000000 : 0);
    entry->path = entry->kind = entry->target = NULL;
    if (json_text(part[1], &entry->kind) != TEXT_FINE) broken("a TREE entry's kind must be a text");
    bool is_link = strcmp(entry->kind, "link") == 0;
    if (!is_link && strcmp(entry->kind, "file") != 0 && strcmp(entry->kind, "dir") != 0)
        broken("a TREE entry's kind must be file, dir or link, not %s", entry->kind);
    if (strcmp(entry->kind, "file") != 0 && size != 0) broken("a TREE entry that is no file has contents");
    if (put->failed) return false;
    entry->path = words_or_refuse(put->stream, part[0], "an entry's path");
    if (entry->path != NULL && is_link) entry->target = words_or_refuse(put->stream, part[5], "a link's target");
    if (entry->path == NULL || (is_link && entry->target == NULL)) put->failed = true;
    return !put->failed;
}

bool take_tree(const Frame *frame) {
    Put *put = puts_open;
    while (put != NULL && put->stream != frame->stream) put = put->next;
    if (put == NULL) return false;
    keep_errors(&put->error);
    size_t at = 0;
    Json rest = need_list(frame, "entries", '['), one;
    while (json_next(&rest, &one)) {
        Entry entry;
        bool good = read_entry(put, one, &entry);
        if (entry.size > frame->blob_size - at) broken("TREE entries are larger than the frame's raw part");
        if (good) put_entry(put, &entry, frame->blob + at);
        at += entry.size;
        free(entry.path);
        free(entry.kind);
        free(entry.target);
    }
    if (need_boolean(frame, "last")) end(put);
    keep_errors(NULL);
    return true;
}
