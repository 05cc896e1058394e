/* How a command's first process comes to be; what goes wrong in the child before its exec is seen here at once. */
#pragma once
#include <sys/types.h>

#include "request.h"

typedef enum { STAGE_NONE, STAGE_FORK, STAGE_TERMINAL, STAGE_USER, STAGE_EXEC } Stage;

typedef struct {
    Stage stage;
    int code; /* errno */
} Failure;

/* A page that children share with us: how far the last one came before its exec, and who it is. */
typedef struct {
    Stage stage;
    int code;
    pid_t pid;
} ChildReport;

volatile ChildReport *child_report_page(void); /* NULL and errno: no memory */

/* The new process' standard streams; -1 nowhere. */
typedef struct {
    int in, out, err;
} Ends;

/* chdir for good, but never into /proc. NULL: done, else what is wrong. */
const char *folder_enter(const char *path);

/* The program that a shell would take, allocated; NULL and what to say instead (126 or 127 in *code). Enters `cwd` for good. */
char *program_find(const Request *request, int *code, char **message);

pid_t spawn(const char *program, const Request *request, Ends ends, Failure *failure); /* 0: it failed */

/* The same under a subreaper, so that whatever the command starts stays attributable to it. `report`: see `supervise.c`. */
pid_t spawn_supervised(const char *program, const Request *request, Ends ends, pid_t *leader, int *report, Failure *failure);
