#include "walk.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bytes.h"
#include "files.h"
#include "paths.h"

typedef struct {
    bool recursive;
    Visit *visit;
    void *state;
    Bytes path; /* of the folder being walked, with a slash; grows and shrinks */
} Walk;

static int by_bytes(const void *one, const void *other) { return strcmp(*(char *const *)one, *(char *const *)other); }

/* The names in a folder, one after the other in `text`, and sorted pointers to them. */
static char **sorted_names(DIR *list, Bytes *text, size_t *count) {
    *count = 0;
    for (struct dirent *entry; (errno = 0, entry = readdir(list)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        bytes_add(text, entry->d_name, strlen(entry->d_name) + 1);
        ++*count;
    }
    if (errno != 0) return NULL;
    char **names = text->failed ? NULL : malloc((*count + 1) * sizeof *names);
    if (names == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    char *at = text->data;
    for (size_t n = 0; n < *count; n++, at += strlen(at) + 1) names[n] = at;
    qsort(names, *count, sizeof *names, by_bytes);
    return names;
}

static int walk_folder(Walk *walk, int folder, int depth);

static int below(Walk *walk, int folder, const char *name, int depth) {
    if (depth >= DEEPEST_FOLDER) {
        errno = EMLINK;
        return -1;
    }
    int fd = openat(folder, name, TO_LIST);
    if (fd < 0) return errno == ENOENT || errno == EACCES || errno == ENOTDIR || errno == ELOOP ? 0 : -1; /* gone, or closed to us */
    size_t size = walk->path.size;
    bytes_add(&walk->path, name, strlen(name));
    bytes_add(&walk->path, "/", 1);
    int result = walk_folder(walk, fd, depth + 1);
    walk->path.size = size;
    return result;
}

static int one_entry(Walk *walk, int folder, const char *name, int depth) {
    struct stat status;
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) < 0) return errno == ENOENT ? 0 : -1; /* removed since it was listed */
    size_t size = walk->path.size;
    bytes_add(&walk->path, name, strlen(name) + 1);
    if (walk->path.failed) {
        errno = ENOMEM;
        return -1;
    }
    Step step = walk->visit(walk->state, &(Found){walk->path.data, name, folder, &status});
    walk->path.size = size;
    if (step == WALK_REFUSED) return 1;
    return walk->recursive && S_ISDIR(status.st_mode) ? below(walk, folder, name, depth) : 0;
}

static int walk_folder(Walk *walk, int folder, int depth) {
    DIR *list = fdopendir(folder);
    if (list == NULL) {
        close(folder);
        return -1;
    }
    Bytes text = {0};
    size_t count;
    char **names = sorted_names(list, &text, &count);
    int result = names == NULL ? -1 : 0;
    for (size_t n = 0; result == 0 && n < count; n++) result = one_entry(walk, folder, names[n], depth);
    int code = errno;
    free(names);
    bytes_free(&text);
    closedir(list);
    errno = code;
    return result;
}

int walk(int folder, bool recursive, Visit *visit, void *state) {
    Walk one = {recursive, visit, state, {0}};
    int result = walk_folder(&one, folder, 0), code = errno;
    bytes_free(&one.path);
    errno = code;
    return result;
}
