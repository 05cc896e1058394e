#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "fault.h"
#include "head.h"
#include "paths.h"

static void read_piece(const Frame *frame, const char *path, int fd, long long most, long long offset) {
    struct stat status;
    if (fstat(fd, &status) < 0) {
        answer_errno(frame->stream, path, errno);
        return;
    }
    if (!require_regular(frame->stream, path, status.st_mode)) return;
    long long left = offset < 0 || offset > status.st_size ? 0 : status.st_size - offset;
    size_t room = (size_t)(left < most ? left : most < 0 ? 0 : most), size = 0;
    char *data = room > MOST_FRAME_BYTES ? NULL : malloc(room + 1);
    if (data == NULL) {
        answer_error(frame->stream, room > MOST_FRAME_BYTES ? "OutputLimit" : "InfraError", "%s: %zu bytes don't fit one answer", path, room);
        return;
    }
    for (ssize_t got = 1; got > 0 && size < room; size += (size_t)got) {
        got = pread(fd, data + size, room - size, offset + (off_t)size);
        if (got < 0) break;
    }
    wire_send(OK, frame->stream, &(Bytes){.data = "{}", .size = 2}, &(struct iovec){data, size}, 1, -1);
    free(data);
}

void serve_read(const Frame *frame) {
    long long most = need_integer(frame, "max_bytes"), offset = need_integer(frame, "offset");
    char *path = need_path(frame);
    if (path == NULL) return;
    Spot spot = spot_named(frame->stream, path, false);
    struct stat status;
    if (spot.folder >= 0) {
        if (fstatat(spot.folder, spot.name, &status, AT_SYMLINK_NOFOLLOW) < 0) {
            answer_errno(frame->stream, path, errno);
        } else if (require_regular(frame->stream, path, status.st_mode)) { /* asked before opening: a device may act on it */
            int fd = openat(spot.folder, spot.name, TO_READ);
            if (fd < 0) {
                answer_errno(frame->stream, path, errno);
            } else {
                read_piece(frame, path, fd, most, offset);
                close(fd);
            }
        }
    }
    spot_leave(&spot);
    free(path);
}

bool write_all(int fd, const char *data, size_t size) {
    while (size > 0) {
        ssize_t put = write(fd, data, size);
        if (put < 0) return false;
        data += put;
        size -= (size_t)put;
    }
    return true;
}

int fresh_file(int folder, char (*name)[32]) {
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != sizeof number) return -1;
    snprintf(*name, sizeof *name, ".etude-%012llx", (unsigned long long)(number >> 16));
    return openat(folder, *name, TO_CREATE, 0600);
}

static bool replace(const Spot *spot, const char *data, size_t size, mode_t mode) {
    char fresh[32];
    int fd = fresh_file(spot->folder, &fresh);
    if (fd < 0) return false;
    bool good = write_all(fd, data, size) && fchmod(fd, mode) == 0 && renameat(spot->folder, fresh, spot->folder, spot->name) == 0;
    int code = errno;
    close(fd);
    if (!good) unlinkat(spot->folder, fresh, 0);
    errno = code;
    return good;
}

bool file_write(uint32_t stream, const char *path, const char *data, size_t size, int mode) {
    Spot spot = spot_named(stream, path, true);
    if (spot.folder < 0) {
        spot_leave(&spot);
        return false;
    }
    struct stat status;
    bool exists = fstatat(spot.folder, spot.name, &status, AT_SYMLINK_NOFOLLOW) == 0, good = true;
    if (exists) good = require_regular(stream, path, status.st_mode);
    if (good) {
        mode_t wanted = mode != MODE_KEPT ? (mode_t)mode : exists ? status.st_mode : 0644;
        good = replace(&spot, data, size, wanted & 0777);
        if (!good) answer_errno(stream, path, errno);
    }
    spot_leave(&spot);
    return good;
}

void serve_write(const Frame *frame) {
    char *path = need_path(frame);
    if (path == NULL) return;
    int mode = json_is_null(json_get(frame->head, "mode")) ? MODE_KEPT : (int)(need_integer(frame, "mode") & 0777);
    if (file_write(frame->stream, path, frame->blob, frame->blob_size, mode)) wire_say(OK, frame->stream, "{}");
    free(path);
}

int remove_below(int folder, const char *name, int depth) {
    if (unlinkat(folder, name, 0) == 0) return 0;
    struct stat status;
    int code = errno;
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) < 0) return -1;
    errno = S_ISDIR(status.st_mode) ? EMLINK : code;
    if (!S_ISDIR(status.st_mode) || depth >= DEEPEST_FOLDER) return -1;
    int fd = openat(folder, name, TO_LIST);
    if (fd < 0) return -1;
    DIR *list = fdopendir(fd);
    if (list == NULL) {
        close(fd);
        return -1;
    }
    int result = 0;
    for (struct dirent *entry; result == 0 && (entry = readdir(list)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) result = remove_below(fd, entry->d_name, depth + 1);
    code = errno;
    closedir(list);
    errno = code;
    return result < 0 ? -1 : unlinkat(folder, name, AT_REMOVEDIR);
}

void serve_remove(const Frame *frame) {
    char *path = need_path(frame);
    if (path == NULL) return;
    Spot spot = spot_named(frame->stream, path, false);
    if (spot.folder >= 0) {
        if (remove_below(spot.folder, spot.name, 0) == 0)
            wire_say(OK, frame->stream, "{}");
        else if (errno == EMLINK)
            answer_error(frame->stream, "UserError", "%s: folders nest deeper than %d", path, DEEPEST_FOLDER);
        else
            answer_errno(frame->stream, path, errno);
    }
    spot_leave(&spot);
    free(path);
}

void serve_stat(const Frame *frame) {
    char *path = need_path(frame);
    if (path == NULL) return;
    Spot spot = spot_find(frame->stream, path, false);
    struct stat status;
    if (spot.folder >= 0) {
        const char *name = spot.name == NULL ? "" : spot.name;
        if (fstatat(spot.folder, name, &status, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) < 0) {
            answer_errno(frame->stream, path, errno);
        } else {
            Bytes head = {0};
            bytes_say(&head, "{\"entry\":[");
            json_add_text(&head, path, strlen(path));
            bytes_say(&head, ",\"%s\",%lld,%u]}", kind_of(status.st_mode), (long long)status.st_size, status.st_mode & 07777);
            wire_send(OK, frame->stream, &head, NULL, 0, -1);
            bytes_free(&head);
        }
    }
    spot_leave(&spot);
    free(path);
}
