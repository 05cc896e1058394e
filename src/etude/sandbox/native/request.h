/* What a RUN or EXEC asks for, in the words of the system. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "wire.h"

enum { MOST_GROUPS = 64 }; /* a user of an image has a handful */

typedef struct {
    char **list; /* ended by NULL */
    size_t count;
} Words;

typedef struct {
    Words argv, env;
    char *cwd;
    double timeout_s; /* INFINITY: none */
    size_t most_output;
    long long credit;
    bool streams, open_stdin, has_tty, has_user, warm;
    unsigned short rows, columns;
    uid_t uid;
    gid_t gid, groups[MOST_GROUPS];
    size_t group_count;
} Request;

bool request_read(const Frame *frame, Request *request); /* false: refused, and answered */
void request_free(Request *request);
const char *request_variable(const Request *request, const char *name); /* of its environment; NULL: not there */

/* A number, or a name of the inside's /etc/passwd, into `uid`, `gid`, `groups`. False: refused, and answered. */
bool user_find(uint32_t stream, Json user, Request *request);
