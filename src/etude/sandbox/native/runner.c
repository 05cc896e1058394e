/* Process 1 of a sandbox, natively: `runner CONTROL SPEC`. One loop over the control socket and the commands' pipes.

   Promises: the end of the control socket ends it, and with it every process inside (pid namespace); a time-out kills the command's whole
   tree, double forks and new sessions included, and nothing else; a failed fork is PidsExhausted, never an empty success. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "archive.h"
#include "commands.h"
#include "connect.h"
#include "death.h"
#include "excess.h"
#include "fault.h"
#include "files.h"
#include "freeze.h"
#include "leftover.h"
#include "listing.h"
#include "memory.h"
#include "offer.h"
#include "spec.h"
#include "supervise.h"
#include "warm.h"

enum { EVENTS = 64, KEPT = 4 }; /* descriptors that are handed in */

static double next_watch_s;

static void serve(Frame *frame) {
    switch (frame->kind) {
        case CANCEL: case STDIN: case SIGNAL: case RESIZE: case CREDIT: return serve_follow_up(frame);
        case TREE:
            if (!take_tree(frame)) broken("TREE on stream %u, where no PUT is", frame->stream);
            return;
        default: break;
    }
    if (frame->stream == 0) broken("a request (type %u) on stream 0", frame->kind);
    if (job_find(frame->stream) != NULL || put_uses(frame->stream) || connect_uses(frame->stream))
        broken("stream %u is in use", frame->stream);
    switch (frame->kind) {
        case RUN: case EXEC: return serve_command(frame);
        case READ: return serve_read(frame);
        case WRITE: return serve_write(frame);
        case LIST: return serve_list(frame);
        case REMOVE: return serve_remove(frame);
        case EXPORT: return serve_export(frame);
        case STAT: return serve_stat(frame);
        case GET: return serve_get(frame);
        case PUT: return serve_put(frame);
        case CONNECT: return serve_connect(frame);
        case FREEZE: return serve_freeze(frame);
        default: broken("a frame of type %u is no request", frame->kind);
    }
}

static void handle(Source *source) {
    struct signalfd_siginfo signals[8];
    if (source->fd < 0) return; /* closed by an earlier event of this turn */
    switch (source->kind) {
        case SOURCE_CONTROL: return wire_listen(serve);
        case SOURCE_CHILDREN:
            while (read(source->fd, signals, sizeof signals) > 0) continue;
            return reap();
        case SOURCE_REPORT: return report_read(source->job);
        case SOURCE_STDIN: return job_feed(source->job);
        case SOURCE_STDOUT: case SOURCE_STDERR: return job_drain(source->job, source);
        case SOURCE_CONNECT: return connect_arrived(source);
        case SOURCE_LEFTOVER: return leftover_drain(source);
    }
}

static void check_jobs(void) {
    double now = now_s();
    for (Job *job = jobs; job != NULL; job = job->next) {
        if (!job->gone && !job->over && now >= job->deadline_s) {
            job->timed_out = true;
            job_kill(job);
            now = now_s();
        }
        if (!job->gone && job_is_finished(job, now)) job_answer(job);
    }
    jobs_sweep();
}

/* Memory and watched disks are looked at while anything lives, be it what a command left behind. */
static void watch_limits(void) {
    if (!is_init() || !(jobs != NULL || any_commands())) {
        next_watch_s = INFINITY;
        return;
    }
    double now = now_s();
    if (isinf(next_watch_s)) next_watch_s = now + WATCH_S;
    if (now < next_watch_s) return;
    next_watch_s = now + WATCH_S;
    memory_watch();
    excess_check();
}

static double wakes_s(void) {
    double earliest_s = fmin(next_watch_s, connect_wakes_s());
    for (const Job *job = jobs; job != NULL; job = job->next) earliest_s = fmin(earliest_s, job_wakes_s(job));
    return earliest_s;
}

/* Whatever else the starter had open has no use inside. */
static void close_others(const int kept[KEPT]) {
    for (int fd = 3;;) {
        int next = INT_MAX;
        for (int n = 0; n < KEPT; n++)
            if (kept[n] >= fd && kept[n] < next) next = kept[n];
        if (next > fd) syscall(SYS_close_range, (unsigned)fd, next == INT_MAX ? ~0U : (unsigned)next - 1, 0U);
        if (next == INT_MAX) return;
        fd = next + 1;
    }
}

static void prepare(int control_fd, const int kept[KEPT]) {
    mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
    mallopt(M_TRIM_THRESHOLD, LARGE_BYTES);
    umask(022);
    signal(SIGPIPE, SIG_IGN);
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) give_up("/dev/null", errno);
    close_others(kept);
    /* The program's file can be executed and not read (build.py), so the kernel starts it hidden; its own file is open to it only as it isn't. */
    prctl(PR_SET_DUMPABLE, 1UL, 0UL, 0UL, 0UL);
    offer_prepare();
    prctl(PR_SET_DUMPABLE, 0UL, 0UL, 0UL, 0UL); /* nobody inside reads this process' memory, descriptors or environment */
    fcntl(control_fd, F_SETFD, FD_CLOEXEC);
    wire_open(control_fd);
}

static int children_fd(void) {
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_SETMASK, &children, NULL);
    int fd = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) give_up("signalfd", errno);
    return fd;
}

static int number_of(const char *word) {
    char *stop;
    long found = strtol(word, &stop, 10);
    return *word != '\0' && *stop == '\0' && found > 2 && found < 1 << 20 ? (int)found : -1;
}

int main(int count, char **words) {
    bool tested = count == 4 && strcmp(words[3], "--self-test") == 0;
    int code_fd = count > 3 && !tested ? number_of(words[3]) : -1, server_fd = count == 6 ? number_of(words[4]) : -1;
    pid_t server = count == 6 ? (pid_t)atoi(words[5]) : 0;
    int control_fd = count > 2 ? number_of(words[1]) : -1, spec_fd = count > 2 ? number_of(words[2]) : -1;
    if (count != 3 + (tested || code_fd >= 0) + 2 * (server_fd >= 0 && server > 0) || control_fd < 0 || spec_fd < 0 || control_fd == spec_fd) {
        fprintf(stderr, "usage: runner CONTROL SPEC [CODE [SOCKET PID]]: the numbers of open descriptors: a socket, a file, the program of the warm interpreter;"
                        " the socket and the process of one that runs\n");
        return 64;
    }
    prepare(control_fd, (int[]){control_fd, spec_fd, code_fd, server_fd});
    warm_prepare(code_fd, server_fd, server);
    if (!is_init() && !tested) give_up("not process 1 of a pid namespace, so kill(-1) would reach the host", EPERM);
    spec_read(spec_fd);
    loop_open();
    Source control = {.fd = control_fd, .kind = SOURCE_CONTROL}, children = {.fd = children_fd(), .kind = SOURCE_CHILDREN};
    source_watch(&control, EPOLLIN);
    source_watch(&children, EPOLLIN);
    next_watch_s = INFINITY;
    wire_say(READY, 0, "{}");
    for (struct epoll_event events[EVENTS];;) {
        int many = loop_wait(events, EVENTS, wakes_s());
        for (int n = 0; n < many; n++) handle(events[n].data.ptr);
        check_jobs();
        connect_check();
        watch_limits();
    }
}
