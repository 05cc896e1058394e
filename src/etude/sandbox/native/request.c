#include "request.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"
#include "head.h"
#include "spec.h"
#include "warm.h"

/* The same as the Python runner's (`inside/start.py`): a program must not behave otherwise under the one and the other. */
static const char *const standard[] = {
    "PATH=/opt/etude/bin:/usr/local/bin:/usr/bin:/bin", "HOME=/tmp", "TMPDIR=/tmp", "LANG=C.UTF-8", "PYTHONHASHSEED=0",
    "PYTHONDONTWRITEBYTECODE=1"};

static bool words_add(Words *words, char *word) {
    char **list = word == NULL ? NULL : realloc(words->list, (words->count + 2) * sizeof *list);
    if (list == NULL) {
        free(word);
        return false;
    }
    words->list = list;
    list[words->count++] = word;
    list[words->count] = NULL;
    return true;
}

static void words_free(Words *words) {
    for (size_t n = 0; n < words->count; n++) free(words->list[n]);
    free(words->list);
    *words = (Words){0};
}

static char **find(const Words *words, const char *name, size_t size) {
    for (size_t n = 0; n < words->count; n++)
        if (strncmp(words->list[n], name, size) == 0 && words->list[n][size] == '=') return words->list + n;
    return NULL;
}

const char *request_variable(const Request *request, const char *name) {
    char **found = find(&request->env, name, strlen(name));
    return found == NULL ? NULL : *found + strlen(name) + 1;
}

static bool set(Words *env, uint32_t stream, Json name_text, Json value_text) {
    char *name = words_or_refuse(stream, name_text, "a variable's name"), *pair = NULL;
    char *value = name == NULL ? NULL : words_or_refuse(stream, value_text, "a variable's value");
    bool good = value != NULL;
    if (good && (*name == '\0' || strchr(name, '=') != NULL)) {
        answer_error(stream, "UserError", "'%s' can't be the name of a variable", name);
        good = false;
    } else if (good) {
        char **old = find(env, name, strlen(name));
        if (asprintf(&pair, "%s=%s", name, value) < 0) pair = NULL;
        good = pair != NULL;
        if (good && old != NULL) {
            free(*old);
            *old = pair;
        } else if (good) {
            good = words_add(env, pair);
        }
        if (!good) answer_error(stream, "InfraError", "no memory for an environment");
    }
    free(name);
    free(value);
    return good;
}

static bool read_env(const Frame *frame, Words *env) {
    for (size_t n = 0; n < sizeof standard / sizeof *standard; n++)
        if (!words_add(env, strdup(standard[n]))) {
            answer_error(frame->stream, "InfraError", "no memory for an environment");
            return false;
        }
    need_list(frame, "env", '{');
    Json both[] = {spec.env, json_get(frame->head, "env")}, name, value;
    for (int n = 0; n < 2; n++)
        for (Json rest = json_inside(both[n], '{'); json_next(&rest, &name) && json_next(&rest, &value);)
            if (!set(env, frame->stream, name, value)) return false;
    return true;
}

static bool read_argv(const Frame *frame, Words *argv) {
    Json rest = need_list(frame, "argv", '['), one;
    while (json_next(&rest, &one)) {
        char *word = words_or_refuse(frame->stream, one, "a command's word");
        if (word == NULL) return false;
        if (!words_add(argv, word)) {
            answer_error(frame->stream, "InfraError", "no memory for a command");
            return false;
        }
    }
    if (argv->count == 0) broken("a command needs at least one word");
    return true;
}

/* Relative to the workdir, or absolute. */
static bool read_cwd(const Frame *frame, char **cwd) {
    Json asked = json_get(frame->head, "cwd");
    char *path = NULL;
    if (!json_is_null(asked) && (path = words_or_refuse(frame->stream, asked, "cwd")) == NULL) return false;
    if (path != NULL && *path == '/') {
        *cwd = path;
        return true;
    }
    bool good = asprintf(cwd, path == NULL || *path == '\0' ? "%s" : "%s/%s", spec.workdir, path) >= 0;
    free(path);
    if (!good) *cwd = NULL;
    if (!good) answer_error(frame->stream, "InfraError", "no memory for a path");
    return good;
}

static void read_tty(const Frame *frame, Request *request) {
    Json asked = json_get(frame->head, "tty"), rows, columns;
    if (json_is_null(asked)) return;
    long long size[2] = {0, 0};
    Json rest = json_inside(asked, '[');
    if (!json_next(&rest, &rows) || !json_next(&rest, &columns) || !json_integer(rows, size) || !json_integer(columns, size + 1))
        broken("EXEC: tty must be null or [rows, columns]");
    request->has_tty = true;
    request->rows = (unsigned short)size[0];
    request->columns = (unsigned short)size[1];
}

static void read_stream(const Frame *frame, Request *request) {
    request->streams = true;
    request->timeout_s = json_is_null(json_get(frame->head, "timeout_s")) ? INFINITY : need_real(frame, "timeout_s");
    request->open_stdin = need_boolean(frame, "open_stdin");
    request->credit = need_integer(frame, "credit");
    read_tty(frame, request);
}

bool request_read(const Frame *frame, Request *request) {
    *request = (Request){0};
    if (json_get(frame->head, "warm").at != NULL) request->warm = need_boolean(frame, "warm");
    if (request->warm && !warm_is_offered()) {
        answer_error(frame->stream, "Unsupported", "a warm run needs an interpreter: make the sandbox with warm_python=True");
        return false;
    }
    if (frame->kind == EXEC) {
        read_stream(frame, request);
    } else {
        long long most = need_integer(frame, "max_output_bytes");
        request->most_output = most < 0 ? 0 : (size_t)most;
        request->timeout_s = need_real(frame, "timeout_s");
    }
    Json user = json_get(frame->head, "user");
    request->has_user = user.at != NULL && !json_is_null(user);
    if (request->has_user && !user_find(frame->stream, user, request)) return false;
    return read_argv(frame, &request->argv) && read_cwd(frame, &request->cwd) && read_env(frame, &request->env);
}

void request_free(Request *request) {
    words_free(&request->argv);
    words_free(&request->env);
    free(request->cwd);
}
