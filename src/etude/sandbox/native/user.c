/* Who a command runs as: libc's own look-up would load modules, which a static program inside somebody else's image must not. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault.h"
#include "head.h"
#include "request.h"

enum { MOST_FILE_BYTES = 1 << 20, FIELDS = 4 };

/* Allocated; NULL where there is none: an image need not have one. */
static char *read_table(const char *path) {
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY);
    struct stat status;
    char *text = NULL;
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= MOST_FILE_BYTES)
        text = malloc((size_t)status.st_size + 1);
    if (text != NULL) {
        ssize_t size = read(fd, text, (size_t)status.st_size);
        text[size < 0 ? 0 : size] = '\0';
    }
    if (fd >= 0) close(fd);
    return text;
}

static long long number_in(const char *text) { /* -1: none that can be an id */
    char *stop;
    if (*text < '0' || *text > '9') return -1;
    long long found = strtoll(text, &stop, 10);
    return *stop == '\0' && found < 0xffffffffLL ? found : -1;
}

/* The next line with four fields, cut at its colons. */
static bool next_line(char **rest, char *(*fields)[FIELDS]) {
    for (char *line; (line = strsep(rest, "\n")) != NULL;) {
        int count = 0;
        while (count < FIELDS && ((*fields)[count] = strsep(&line, ":")) != NULL) count++;
        if (count == FIELDS) return true;
    }
    return false;
}

/* The name in the entry, allocated; NULL: there is none. */
static char *find_entry(const char *asked, long long number, Request *request) {
    char *text = read_table("/etc/passwd"), *rest = text, *fields[FIELDS], *name = NULL;
    while (name == NULL && next_line(&rest, &fields)) {
        long long uid = number_in(fields[2]), gid = number_in(fields[3]);
        if (uid < 0 || gid < 0 || (strcmp(fields[0], asked) != 0 && uid != number)) continue;
        request->uid = (uid_t)uid;
        request->gid = (gid_t)gid;
        name = strdup(fields[0]);
    }
    free(text);
    return name;
}

static bool is_listed(char *members, const char *name) {
    for (char *one; (one = strsep(&members, ",")) != NULL;)
        if (strcmp(one, name) == 0) return true;
    return false;
}

static void find_groups(const char *name, Request *request) {
    char *text = read_table("/etc/group"), *rest = text, *fields[FIELDS];
    while (request->group_count < MOST_GROUPS && next_line(&rest, &fields)) {
        long long gid = number_in(fields[2]);
        if (gid >= 0 && is_listed(fields[3], name)) request->groups[request->group_count++] = (gid_t)gid;
    }
    free(text);
}

bool user_find(uint32_t stream, Json user, Request *request) {
    long long number = -1;
    char *asked = NULL;
    if (!json_integer(user, &number)) {
        if ((asked = words_or_refuse(stream, user, "user")) == NULL) return false;
        number = number_in(asked);
    }
    char *name = find_entry(asked == NULL ? "" : asked, number, request);
    bool good = name != NULL || (number >= 0 && number < 0xffffffffLL); /* a number needs no entry: its group has the same then */
    if (name != NULL)
        find_groups(name, request);
    else if (good)
        request->uid = request->gid = (uid_t)number;
    else
        answer_error(stream, "UserError", "user '%s' is neither a number nor in the sandbox' /etc/passwd", asked == NULL ? "" : asked);
    free(name);
    free(asked);
    return good;
}
