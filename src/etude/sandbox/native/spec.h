/* What this sandbox must be, as far as its runner has to know it. */
#pragma once
#include "wire.h"

typedef struct {
    char *workdir;
    long long memory_mb, data_mb, address_mb, pids, disk_mb;
    char *frame; /* the SPEC frame's payload: its `env` is read from there for every command */
    Json env;
    char *python; /* the interpreter of warm runs; NULL: there is none */
} Spec;

extern Spec spec;

void spec_read(int fd); /* takes the descriptor; writes the first files. Ends the process with ERROR on stream 0 if it can't */
