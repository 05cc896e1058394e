#include "excess.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "death.h"
#include "fault.h"
#include "head.h"
#include "spec.h"

enum { MOST_WATCHED = 8, INODES_PER_MB = 256 }; /* files of one 4 KiB page fill size and inodes together */

typedef struct {
    unsigned long long bytes, files;
} Usage;

static char *watched[MOST_WATCHED];
static size_t count;
static Usage before;

void excess_watch(Json folders) {
    if (folders.at == NULL || json_is_null(folders)) return;
    Json rest = json_inside(folders, '['), one;
    if (rest.at == NULL) broken("SPEC: watched is no list");
    while (json_next(&rest, &one)) {
        if (count == MOST_WATCHED) broken("SPEC: more than %d watched folders", MOST_WATCHED);
        char *path = words_or_refuse(0, one, "a watched folder's path");
        if (path == NULL) _exit(1);
        watched[count++] = path;
    }
}

/* Of all watched file systems together, each counted once. */
static Usage used(void) {
    dev_t devices[MOST_WATCHED];
    size_t known = 0;
    Usage sum = {0, 0};
    for (size_t n = 0; n < count; n++) {
        struct stat status;
        struct statvfs found;
        bool counted = stat(watched[n], &status) < 0 || statvfs(watched[n], &found) < 0; /* this root may have no such folder */
        for (size_t k = 0; !counted && k < known; k++) counted = devices[k] == status.st_dev;
        if (counted) continue;
        devices[known++] = status.st_dev;
        sum.bytes += (unsigned long long)(found.f_blocks - found.f_bfree) * found.f_frsize;
        sum.files += found.f_files - found.f_ffree;
    }
    return sum;
}

void excess_check(void) {
    if (count == 0) return;
    Usage now = used(), last = before;
    unsigned long long most_files = (unsigned long long)spec.disk_mb * INODES_PER_MB;
    char reason[160];
    before = now;
    if (now.bytes > (unsigned long long)spec.disk_mb << 20 && now.bytes > last.bytes)
        snprintf(reason, sizeof reason, "its files hold more than disk_mb=%lld allows", spec.disk_mb);
    else if (now.files > most_files && now.files > last.files)
        snprintf(reason, sizeof reason, "its folders hold more than %llu files and folders (disk_mb=%lld)", most_files, spec.disk_mb);
    else
        return;
    kill_all(reason);
}
