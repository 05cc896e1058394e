#include "freeze.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fault.h"
#include "head.h"
#include "loop.h"
#include "processes.h"

#define STOPPING_S 5.0
#define BORROWED_S 0.01 /* a parent that waits this long in the kernel, with a stopped child, waits for that child (vfork) */

static Processes asleep; /* stopped before we came: they stay so when the others go on */
static bool is_frozen;

/* The states of all threads of a process; "" when it is gone. A thread beyond the room counts as one that runs. */
static void read_states(pid_t pid, char *states, size_t room) {
    char path[64], text[512];
    size_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *list = opendir(path);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%.20s/stat", entry->d_name);
        int fd = openat(dirfd(list), path, O_RDONLY | O_CLOEXEC);
        ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        if (fd >= 0) close(fd);
        text[size < 0 ? 0 : size] = '\0';
        const char *rest = strrchr(text, ')');
        if (rest == NULL || rest[1] == '\0') continue; /* ended meanwhile */
        if (count < room - 1)
            states[count++] = rest[2];
        else
            states[0] = 'R';
    }
    if (list != NULL) closedir(list);
    states[count] = '\0';
}

static bool are_all(const char *states, const char *allowed) { return strspn(states, allowed) == strlen(states); }

static bool has_stopped_child(const Processes *list, const Process *process) {
    for (size_t n = 0; n < list->count; n++)
        if (list->all[n].parent == process->pid && (list->all[n].state == 'T' || list->all[n].state == 't')) return true;
    return false;
}

/* Stop once more whoever moves; whether nobody does. */
static bool all_stand(bool borrowing, size_t *count) {
    Processes list = processes_read();
    bool stand = true;
    char states[256];
    for (size_t n = 0; n < list.count; n++) {
        read_states(list.all[n].pid, states, sizeof states);
        if (are_all(states, "TtZX") || (borrowing && are_all(states, "TtZXD") && has_stopped_child(&list, list.all + n))) continue;
        stand = false;
        kill(list.all[n].pid, SIGSTOP);
    }
    *count = list.count;
    processes_free(&list);
    return stand;
}

static void remember_asleep(void) {
    asleep = processes_read();
    size_t kept = 0;
    for (size_t n = 0; n < asleep.count; n++)
        if (asleep.all[n].state == 'T' || asleep.all[n].state == 't') asleep.all[kept++] = asleep.all[n];
    asleep.count = kept;
}

static void go_on(void) {
    Processes list = processes_read();
    for (size_t n = 0; n < list.count; n++) {
        bool was_asleep = false;
        for (size_t old = 0; old < asleep.count; old++)
            was_asleep |= asleep.all[old].pid == list.all[n].pid && asleep.all[old].born == list.all[n].born;
        if (!was_asleep) kill(list.all[n].pid, SIGCONT);
    }
    processes_free(&list);
    processes_free(&asleep);
    is_frozen = false;
}

static bool stop_all(void) {
    double began_s = now_s();
    size_t before = 0, count = 0;
    remember_asleep();
    is_frozen = true;
    kill(-1, SIGSTOP);
    for (bool stood = false;; before = count) {
        bool stand = all_stand(now_s() - began_s > BORROWED_S, &count);
        if (stand && stood && count == before) return true; /* a second look: what was being forked during the first is in it */
        stood = stand;
        if (now_s() - began_s > STOPPING_S) break;
        if (!stand) pause_briefly();
    }
    go_on();
    return false;
}

void serve_freeze(const Frame *frame) {
    bool frozen = need_boolean(frame, "frozen");
    if (!is_init()) {
        answer_error(frame->stream, "Unsupported", "this process is not the first of a pid namespace: it can't stop all others");
        return;
    }
    if (frozen && !is_frozen && !stop_all()) {
        answer_error(frame->stream, "InfraError", "not every process stopped within %g s; all go on", STOPPING_S);
        return;
    }
    if (!frozen && is_frozen) go_on();
    wire_say(OK, frame->stream, "{}");
}
