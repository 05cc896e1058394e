#include "processes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault.h"
#include "warm.h"

bool is_init(void) { return getpid() == 1; }

bool any_children(void) {
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

bool any_commands(void) {
    if (!any_children()) return false;
    if (warm_pid() == 0) return true;
    Processes list = processes_read();
    bool any = list.count > 1;
    processes_free(&list);
    return any;
}

static bool read_one(int folder, const char *name, Process *process) {
    char path[32], text[1024];
    snprintf(path, sizeof path, "%.20s/stat", name);
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false; /* gone since it was listed */
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    if (size <= 0) return false;
    text[size] = '\0';
    char *rest = strrchr(text, ')'); /* its own name may hold anything */
    if (rest == NULL) return false;
    *process = (Process){.pid = atoi(name)};
    return sscanf(rest + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &process->state,
                  &process->parent, &process->born) == 3;
}

Processes processes_read(void) {
    Processes found = {0};
    size_t room = 0;
    DIR *list = opendir("/proc");
    if (list == NULL) give_up("/proc", errno);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9' || atoi(entry->d_name) == getpid()) continue;
        if (found.count == room) {
            room = room ? 2 * room : 64;
            Process *more = realloc(found.all, room * sizeof *more);
            if (more == NULL) give_up("the list of processes", ENOMEM);
            found.all = more;
        }
        found.count += read_one(dirfd(list), entry->d_name, found.all + found.count);
    }
    closedir(list);
    return found;
}

void processes_free(Processes *processes) {
    free(processes->all);
    *processes = (Processes){0};
}

bool is_zombie(const Process *process) { return process->state == 'Z' || process->state == 'X'; }

static bool has_marked_parent(const Processes *processes, const Process *process) {
    for (size_t n = 0; n < processes->count; n++)
        if (processes->all[n].marked && processes->all[n].pid == process->parent) return true;
    return false;
}

void mark_below(Processes *processes) {
    for (bool grew = true; grew;) {
        grew = false;
        for (size_t n = 0; n < processes->count; n++) {
            Process *process = processes->all + n;
            if (process->marked || !has_marked_parent(processes, process)) continue;
            process->marked = grew = true;
        }
    }
}
