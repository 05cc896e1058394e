#include "spec.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "excess.h"
#include "fault.h"
#include "files.h"
#include "head.h"

Spec spec;

static char *whole_file(int fd, size_t *size) {
    struct stat status;
    if (fstat(fd, &status) < 0) give_up("the spec", errno);
    char *data = malloc((size_t)status.st_size + 1);
    if (data == NULL) give_up("the spec", ENOMEM);
    for (*size = 0; *size < (size_t)status.st_size;) {
        ssize_t got = pread(fd, data + *size, (size_t)status.st_size - *size, (off_t)*size);
        if (got <= 0) give_up("the spec", got < 0 ? errno : EIO);
        *size += (size_t)got;
    }
    return data;
}

/* The first files lie one after the other in the raw part. Stream 0: an error there is the end, and is answered by then. */
static void write_files(const Frame *frame) {
    size_t at = 0;
    Json rest = need_list(frame, "files", '['), one;
    while (json_next(&rest, &one)) {
        Json pair = json_inside(one, '['), name = {0}, number = {0};
        long long size = -1;
        if (!json_next(&pair, &name) || !json_next(&pair, &number) || !json_integer(number, &size) || size < 0 ||
            (size_t)size > frame->blob_size - at)
            broken("SPEC: its files are not [path, size] within its raw part");
        char *path = words_or_refuse(0, name, "a first file's path");
        if (path == NULL || !file_write(0, path, frame->blob + at, (size_t)size, 0644)) _exit(1);
        free(path);
        at += (size_t)size;
    }
}

void spec_read(int fd) {
    size_t size;
    char *data = whole_file(fd, &size);
    close(fd);
    uint32_t length = 0;
    if (size >= HEADER_BYTES) memcpy(&length, data, sizeof length);
    Frame frame = {.kind = SPEC};
    if (size < HEADER_BYTES || data[4] != SPEC || ntohl(length) != size - HEADER_BYTES ||
        !frame_read(&frame, data + HEADER_BYTES, size - HEADER_BYTES))
        broken("SPEC: the file that should hold the frame is malformed (%zu bytes)", size);
    spec.workdir = words_or_refuse(0, json_get(frame.head, "workdir"), "workdir");
    if (spec.workdir == NULL) _exit(1);
    spec.memory_mb = need_integer(&frame, "memory_mb");
    spec.data_mb = need_integer(&frame, "data_mb");
    spec.address_mb = need_integer(&frame, "address_mb");
    spec.pids = need_integer(&frame, "pids");
    spec.disk_mb = need_integer(&frame, "disk_mb");
    need_list(&frame, "env", '{');
    excess_watch(json_get(frame.head, "watched"));
    Json python = json_get(frame.head, "python");
    if (python.at != NULL && !json_is_null(python)) spec.python = words_or_refuse(0, python, "python");
    write_files(&frame);
    size_t kept = (size_t)(frame.head.end - data); /* the files themselves needn't stay in memory */
    spec.frame = realloc(data, kept);
    if (spec.frame == NULL) give_up("the spec", ENOMEM);
    spec.env = json_get(json_object(spec.frame + HEADER_BYTES + COUNT_BYTES, kept - HEADER_BYTES - COUNT_BYTES), "env");
}
