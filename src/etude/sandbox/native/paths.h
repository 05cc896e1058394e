/* Paths inside, walked one component at a time without ever following a link, so that nothing inside leads this process astray. */
#pragma once
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

enum {
    TO_LIST = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
    TO_READ = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, /* a pipe without a writer must not hold us up */
    TO_CREATE = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC
};

typedef struct {
    int folder;  /* open, where `name` lies; -1: refused, and answered on the stream */
    char *name;  /* within `whole`; NULL: the path is the root itself, and `folder` is it */
    char *whole; /* absolute and normalised, cut into its components */
} Spot;

Spot spot_find(uint32_t stream, const char *path, bool create);
Spot spot_named(uint32_t stream, const char *path, bool create); /* refuses the root itself */
void spot_leave(Spot *spot);

int folder_open(uint32_t stream, const char *path); /* to list it; -1: answered */
int folder_step(int folder, const char *name);      /* a folder below one, to walk through: no right to list it is needed */
const char *kind_of(mode_t mode);
bool require_regular(uint32_t stream, const char *path, mode_t mode);
