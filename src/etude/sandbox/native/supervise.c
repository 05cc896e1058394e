#include "supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault.h"
#include "offer.h"
#include "warm.h"

static pid_t *living; /* supervisors that are not reaped yet, with a command or with what one left */
static size_t count, room;

void supervisors_remember(pid_t pid) {
    if (count == room) {
        pid_t *more = realloc(living, (room + 16) * sizeof *more);
        if (more == NULL) give_up("the list of supervisors", ENOMEM); /* without it a time-out would hit the wrong ones */
        living = more;
        room += 16;
    }
    living[count++] = pid;
}

bool supervisors_forget(pid_t pid) {
    for (size_t n = 0; n < count; n++) {
        if (living[n] != pid) continue;
        living[n] = living[--count];
        return true;
    }
    return false;
}

bool supervisors_any(void) { return count > 0; }

void supervisors_mark(Processes *processes, pid_t except) {
    for (size_t one = 0; one < processes->count; one++)
        for (size_t n = 0; n < count; n++)
            if (processes->all[one].pid == living[n] && living[n] != except) processes->all[one].marked = true;
}

/* In the supervisor: wait for whatever becomes an orphan, until nothing is left. Holds no descriptor but the report. */
static void supervise(int report, pid_t leader) {
    int status;
    struct rusage usage;
    dup2(report, 0);
    syscall(SYS_close_range, 1U, ~0U, 0U);
    for (pid_t pid; (pid = wait4(-1, &status, 0, &usage)) > 0 || errno == EINTR;) {
        if (pid != leader) continue;
        Report end = {.leader = leader, .over = true, .status = status, .usage = usage};
        if (write(0, &end, sizeof end) != sizeof end) _exit(1);
        close(0); /* one command, one end; what still lives is only waited for */
    }
    _exit(0);
}

static void become_supervisor(const char *program, const Request *request, Ends ends, int report) {
    Report start = {0};
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1UL, 0UL, 0UL, 0UL);
    start.leader = spawn(program, request, ends, &start.failure);
    if (write(report, &start, sizeof start) != sizeof start || start.leader == 0) _exit(1);
    supervise(report, start.leader);
}

/* Read the first report of a supervisor, if there is one. `child_report`: who the leader is if the report does not come; NULL: not known. */
static pid_t accept_supervisor(pid_t pid, int pipe_end, pid_t *leader, int *report, Failure *failure, volatile ChildReport *child_report) {
    Report start = {0};
    bool reported = false;
    if (pid > 0) {
        supervisors_remember(pid);
        *failure = (Failure){STAGE_FORK, EIO};
        reported = read(pipe_end, &start, sizeof start) == sizeof start;
        if (reported) *failure = start.failure;
        if (!reported && child_report != NULL) start.leader = child_report->pid; /* the command was so quick to kill its supervisor: `reap` will see to it */
    }
    if (start.leader > 0) {
        *failure = (Failure){STAGE_NONE, 0};
        *leader = start.leader;
        *report = pipe_end;
        fcntl(*report, F_SETFL, O_NONBLOCK);
        return pid;
    }
    close(pipe_end);
    return 0; /* the supervisor, if there was one, ends by itself and is reaped with all others */
}

pid_t spawn_supervised(const char *program, const Request *request, Ends ends, pid_t *leader, int *report, Failure *failure) {
    int pipe_ends[2];
    volatile ChildReport *child_report = child_report_page(); /* before the fork, so that it is shared with the leader too */
    *failure = (Failure){STAGE_FORK, errno};
    if (child_report == NULL) return 0;
    *child_report = (ChildReport){0};
    if (pipe2(pipe_ends, O_CLOEXEC) < 0) {
        failure->code = errno;
        return 0;
    }
    offer_begin();
    pid_t pid = fork();
    if (pid == 0) become_supervisor(program, request, ends, pipe_ends[1]);
    failure->code = errno;
    offer_end();
    close(pipe_ends[1]);
    return accept_supervisor(pid, pipe_ends[0], leader, report, failure, child_report);
}

pid_t warm_supervised(const char *program, const Request *request, Ends ends, pid_t *leader, int *report, Failure *failure) {
    int pipe_ends[2];
    (void)program;
    if (pipe2(pipe_ends, O_CLOEXEC) < 0) {
        *failure = (Failure){STAGE_FORK, errno};
        return 0;
    }
    pid_t pid = warm_spawn(request, ends, pipe_ends[1], failure);
    close(pipe_ends[1]);
    return accept_supervisor(pid, pipe_ends[0], leader, report, failure, NULL);
}

void report_read(Job *job) {
    Report report;
    ssize_t got = read(job->report.fd, &report, sizeof report);
    if (got < 0 && errno == EAGAIN) return;
    source_close(&job->report);
    if (got == sizeof report && report.over) job_end(job, report.status, &report.usage);
}
