#include "memory.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job.h"
#include "spec.h"
#include "warm.h"

static bool read_text(pid_t pid, const char *name, char *text, size_t room) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, room - 1);
    if (fd >= 0) close(fd);
    text[size < 0 ? 0 : size] = '\0';
    return size > 0;
}

static long long resident(pid_t pid) {
    char text[256];
    long long pages = 0;
    if (read_text(pid, "statm", text, sizeof text)) sscanf(text, "%*d %lld", &pages);
    return pages * sysconf(_SC_PAGESIZE);
}

static long long line_kib(const char *text, const char *name) {
    const char *line = strstr(text, name);
    return line == NULL ? 0 : strtoll(line + strlen(name), NULL, 10);
}

static long long anonymous(pid_t pid) {
    char text[8192];
    if (!read_text(pid, "status", text, sizeof text)) return 0; /* gone */
    return (line_kib(text, "\nRssAnon:") + line_kib(text, "\nRssShmem:")) << 10;
}

/* Its share of every page, so that shared ones count once; for one that hides that (a warm run), what it holds beyond the interpreter. */
static long long proportional(pid_t pid) {
    char text[8192];
    if (read_text(pid, "smaps_rollup", text, sizeof text)) return line_kib(text, "\nPss:") << 10;
    long long own = anonymous(pid) - (warm_pid() > 0 ? anonymous(warm_pid()) : 0);
    return own > 0 ? own : 0;
}

static const Process *process_of(const Processes *list, pid_t pid) {
    for (size_t n = 0; n < list->count; n++)
        if (list->all[n].pid == pid) return list->all + n;
    return NULL;
}

/* The command at or above a process; else the one without a supervisor, whose orphans are nobody's children. */
static Job *owner(const Processes *list, pid_t pid) {
    for (const Process *one = process_of(list, pid); one != NULL; one = process_of(list, one->parent))
        for (Job *job = jobs; job != NULL; job = job->next)
            if (!job->over && (job->leader == one->pid || job->supervisor == one->pid)) return job;
    for (Job *job = jobs; job != NULL; job = job->next)
        if (!job->over && job->supervisor == 0) return job;
    return NULL;
}

void memory_watch(void) {
    long long most = spec.memory_mb << 20, sum = 0, largest = -1;
    pid_t hog = 0;
    Processes list = processes_read();
    for (size_t n = 0; n < list.count; n++)
        if (list.all[n].pid != warm_pid()) sum += resident(list.all[n].pid);
    if (sum > most) {
        sum = 0;
        for (size_t n = 0; n < list.count; n++) {
            if (list.all[n].pid == warm_pid()) continue;
            long long size = proportional(list.all[n].pid);
            sum += size;
            if (size > largest) {
                largest = size;
                hog = list.all[n].pid;
            }
        }
    }
    if (sum > most) {
        Job *job = owner(&list, hog);
        if (job != NULL) job->oom = true;
        kill(hog, SIGKILL);
    }
    processes_free(&list);
}
