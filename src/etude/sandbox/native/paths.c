#include "paths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault.h"
#include "spec.h"

enum { STEP = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };

/* "/a//b/../c" becomes "/a/c", as text. The result is never longer. */
static void normalise(char *path) {
    char *to = path;
    for (char *at = path; *at != '\0';) {
        char *part = at + 1, *stop = strchrnul(part, '/');
        size_t size = (size_t)(stop - part);
        if (size == 2 && part[0] == '.' && part[1] == '.') {
            while (to > path && *--to != '/') continue;
        } else if (size > 0 && !(size == 1 && *part == '.')) {
            *to = '/';
            memmove(to + 1, part, size);
            to += size + 1;
        }
        at = stop;
    }
    *to = '\0';
}

static char *absolute(const char *path) {
    bool whole = *path == '/';
    char *full = malloc(strlen(spec.workdir) + strlen(path) + 3);
    if (full == NULL) return NULL;
    char *end = stpcpy(full, "/");
    if (!whole) end = stpcpy(stpcpy(end, spec.workdir), "/");
    strcpy(end, path);
    normalise(full);
    return full;
}

static bool is_served(const char *full) {
    static const char *const closed[] = {"/proc", "/dev", "/sys"};
    for (size_t n = 0; n < sizeof closed / sizeof *closed; n++) {
        size_t size = strlen(closed[n]);
        if (strncmp(full, closed[n], size) == 0 && (full[size] == '/' || full[size] == '\0')) return false;
    }
    return true;
}

int folder_step(int folder, const char *name) { return openat(folder, name, STEP); }

/* From the root to the folder that holds the last component; the components end in zero bytes afterwards. */
static void descend(Spot *spot, bool create) {
    char *part = spot->whole + 1;
    for (char *slash; spot->folder >= 0 && (slash = strchr(part, '/')) != NULL; part = slash + 1) {
        *slash = '\0';
        int below = folder_step(spot->folder, part);
        if (below < 0 && errno == ENOENT && create && (mkdirat(spot->folder, part, 0755) == 0 || errno == EEXIST))
            below = folder_step(spot->folder, part);
        int code = errno;
        close(spot->folder);
        spot->folder = below;
        errno = code;
    }
    spot->name = part;
}

Spot spot_find(uint32_t stream, const char *path, bool create) {
    Spot spot = {.folder = -1, .whole = absolute(path)};
    if (spot.whole == NULL) {
        answer_error(stream, "InfraError", "no memory for a path");
        return spot;
    }
    if (!is_served(spot.whole)) {
        answer_error(stream, "UserError", "%s: files under /proc, /dev, /sys are not served", path);
        return spot;
    }
    spot.folder = open("/", STEP);
    if (spot.folder >= 0 && *spot.whole != '\0') descend(&spot, create);
    if (spot.folder < 0) answer_errno(stream, path, errno);
    return spot;
}

Spot spot_named(uint32_t stream, const char *path, bool create) {
    Spot spot = spot_find(stream, path, create);
    if (spot.folder >= 0 && spot.name == NULL) {
        answer_error(stream, "UserError", "'%s' names the root, not a file", path);
        close(spot.folder);
        spot.folder = -1;
    }
    return spot;
}

void spot_leave(Spot *spot) {
    if (spot->folder >= 0) close(spot->folder);
    free(spot->whole);
    *spot = (Spot){.folder = -1};
}

int folder_open(uint32_t stream, const char *path) {
    Spot spot = spot_find(stream, path, false);
    int fd = -1;
    if (spot.folder >= 0) {
        fd = openat(spot.folder, spot.name == NULL ? "." : spot.name, TO_LIST);
        if (fd < 0) answer_errno(stream, path, errno);
    }
    spot_leave(&spot);
    return fd;
}

const char *kind_of(mode_t mode) {
    if (S_ISREG(mode)) return "file";
    if (S_ISDIR(mode)) return "dir";
    return S_ISLNK(mode) ? "link" : "other";
}

bool require_regular(uint32_t stream, const char *path, mode_t mode) {
    if (S_ISREG(mode)) return true;
    answer_error(stream, "UserError", "%s is a %s, not a regular file", path, kind_of(mode));
    return false;
}
