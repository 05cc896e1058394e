#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spawn.h"
#include "warm.h"

/* What a link in /proc shows process 1 is not what it shows its children. */
const char *folder_enter(const char *path) {
    struct stat status, proc;
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return strerror(errno);
    const char *problem = NULL;
    if (fstat(fd, &status) < 0 || stat("/proc", &proc) < 0)
        problem = strerror(errno);
    else if (status.st_dev == proc.st_dev)
        problem = "lies in /proc";
    else if (fchdir(fd) < 0)
        problem = strerror(errno);
    close(fd);
    return problem;
}

static bool is_program(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

static char *search(const char *name, const char *path) {
    for (const char *at = path;; at++) {
        size_t size = strcspn(at, ":");
        char *candidate;
        if (asprintf(&candidate, "%.*s/%s", size ? (int)size : 1, size ? at : ".", name) < 0) return NULL;
        if (is_program(candidate)) return candidate;
        free(candidate);
        at += size;
        if (*at == '\0') return NULL;
    }
}

static char *wrong(int *code, char **message, int said) {
    *code = said < 0 ? 126 : *code;
    if (said < 0) *message = NULL;
    return NULL;
}

char *program_find(const Request *request, int *code, char **message) {
    const char *problem = folder_enter(request->cwd), *name = request->argv.list[0];
    *code = 126;
    if (problem != NULL) return wrong(code, message, asprintf(message, "cwd %s: %s", request->cwd, problem));
    if (warm_serves(request)) return strdup(name); /* no program is executed */
    *code = 127;
    if (strchr(name, '/') != NULL) {
        struct stat status;
        if (stat(name, &status) == 0) return strdup(name);
        return wrong(code, message, asprintf(message, "%s: no such file", name));
    }
    const char *path = request_variable(request, "PATH");
    char *found = *name == '\0' ? NULL : search(name, path == NULL ? "" : path);
    if (found != NULL) return found;
    return wrong(code, message, asprintf(message, "%s: command not found", name));
}
