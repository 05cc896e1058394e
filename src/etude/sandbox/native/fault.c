#include "fault.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wire.h"

/* These the inside or the caller can bring about; any other is ours. */
static const int theirs[] = {ENOENT, ENOTDIR, EISDIR, ELOOP, EACCES, EPERM, EEXIST, EROFS, ENAMETOOLONG,
                             ENOTEMPTY, EINVAL, ENXIO, EMLINK, ENODEV, EBUSY};

static Bytes *kept;

void keep_errors(Bytes *into) { kept = into; }

static void send_error(uint32_t stream, const char *kind, const char *format, va_list values) {
    char *message = NULL;
    int size = vasprintf(&message, format, values);
    Bytes head = {0};
    bytes_say(&head, "{\"error\":\"%s\",\"message\":", kind);
    if (size < 0) message = NULL;
    json_add_text(&head, message == NULL ? "no memory" : message, message == NULL ? 9 : (size_t)size);
    bytes_add(&head, "}", 1);
    free(message);
    if (kept != NULL && stream != 0) {
        if (kept->size == 0) bytes_add(kept, head.data, head.size);
    } else if (head.failed) {
        wire_say(ERROR, stream, "{\"error\":\"InfraError\",\"message\":\"no memory\"}");
    } else {
        wire_send(ERROR, stream, &head, NULL, 0, -1);
    }
    bytes_free(&head);
}

void answer_error(uint32_t stream, const char *kind, const char *format, ...) {
    va_list values;
    va_start(values, format);
    send_error(stream, kind, format, values);
    va_end(values);
}

void answer_errno(uint32_t stream, const char *path, int code) {
    if (code == ENOSPC || code == EDQUOT) {
        answer_error(stream, "DiskFull", "%s: %s; the spec's disk_mb is the limit", path, strerror(code));
        return;
    }
    const char *kind = "InfraError";
    for (size_t n = 0; n < sizeof theirs / sizeof *theirs; n++)
        if (theirs[n] == code) kind = "UserError";
    answer_error(stream, kind, "%s: %s", path, strerror(code));
}

void broken(const char *format, ...) {
    va_list values;
    va_start(values, format);
    send_error(0, "InfraError", format, values);
    va_end(values);
    _exit(1);
}

void give_up(const char *step, int code) {
    answer_error(0, "InfraError", "%s: %s", step, strerror(code));
    _exit(70);
}
