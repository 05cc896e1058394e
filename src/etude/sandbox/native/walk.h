/* A depth-first walk below a folder, in order of names as bytes. */
#pragma once
#include <stdbool.h>
#include <sys/stat.h>

typedef struct {
    const char *path; /* relative to where the walk began */
    const char *name;
    int folder; /* that holds it */
    const struct stat *status;
} Found;

typedef enum { WALK_ON, WALK_REFUSED } Step; /* REFUSED: the visitor has answered */
typedef Step Visit(void *state, const Found *found);

/* 0 all seen; 1 the visitor refused; -1 errno (EMLINK: too deep). Takes the descriptor. */
int walk(int folder, bool recursive, Visit *visit, void *state);
