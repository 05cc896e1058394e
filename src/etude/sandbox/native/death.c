#include "death.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault.h"
#include "supervise.h"
#include "warm.h"

#define DYING_S 5.0 /* a killed process that stays in the kernel for longer makes the sandbox unusable: it ends */
enum { ROUNDS = 400 }; /* a fork bomb under the pid limit is caught in a few; this only bounds a race that should not exist */

/* Its supervisor was killed before it could say how the command ended: the command is ours now, and not to go on unwatched. */
static void adopt(Job *job, int status, const struct rusage *usage) {
    siginfo_t info;
    if (waitid(P_PID, (id_t)job->leader, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
        kill(job->leader, SIGKILL);
    else
        job_end(job, status, usage); /* the supervisor had waited for it already */
}

static void reaped(pid_t pid, int status, const struct rusage *usage) {
    if (pid == warm_pid()) return warm_forget();
    bool was_supervisor = supervisors_forget(pid);
    for (Job *job = jobs; job != NULL; job = job->next) {
        if (job->gone) continue;
        if (job->leader == pid && (job->supervisor == 0 || !was_supervisor)) job_end(job, status, usage);
        if (job->supervisor != pid || !was_supervisor) continue;
        if (job->report.fd >= 0) report_read(job);
        job->supervisor = 0;
        if (!job->over) adopt(job, status, usage);
    }
}

void reap(void) {
    int status;
    struct rusage usage;
    for (pid_t pid; (pid = wait4(-1, &status, WNOHANG, &usage)) > 0;) reaped(pid, status, &usage);
}

/* Mark what is *not* the job's: what was there before it, other commands, what those left behind. */
static void mark_others(const Job *job, Processes *list) {
    if (job->supervisor != 0) {
        for (size_t n = 0; n < list->count; n++) list->all[n].marked = list->all[n].pid == job->supervisor;
        mark_below(list);
        for (size_t n = 0; n < list->count; n++) list->all[n].marked = !list->all[n].marked || list->all[n].pid == job->supervisor;
        return;
    }
    supervisors_mark(list, 0);
    for (size_t n = 0; n < list->count; n++) list->all[n].marked |= list->all[n].pid == warm_pid();
    for (size_t n = 0; n < list->count; n++)
        for (size_t elder = 0; elder < job->elder_count; elder++)
            if (list->all[n].pid == job->elders[elder].pid && list->all[n].born == job->elders[elder].born) list->all[n].marked = true;
    mark_below(list);
}

/* To each process of the job; how many there were. */
static size_t send_each(const Job *job, int number) {
    Processes list = processes_read();
    size_t sent = 0;
    mark_others(job, &list);
    for (size_t n = 0; n < list.count; n++)
        if (!list.all[n].marked && !is_zombie(list.all + n) && kill(list.all[n].pid, number) == 0) sent++;
    processes_free(&list);
    return sent;
}

static void await_end(const Job *job, bool all) {
    double limit_s = now_s() + DYING_S;
    for (;;) {
        reap();
        if (job->over && !(all && any_children())) return;
        if (now_s() > limit_s) _exit(70);
        pause_briefly();
    }
}

/* Nothing else lives here: one atomic step. */
static bool is_alone(const Job *job) {
    for (const Job *other = jobs; other != NULL; other = other->next)
        if (other != job && !other->gone) return false;
    return job->supervisor == 0 && job->elder_count == 0 && !supervisors_any() && warm_pid() == 0;
}

/* A stopped supervisor stays the parent of its orphans until they are dead, and leaves it to us to wait for them. */
static void stop(pid_t supervisor) {
    siginfo_t info;
    kill(supervisor, SIGSTOP);
    waitid(P_PID, (id_t)supervisor, &info, WSTOPPED | WEXITED | WNOWAIT);
}

void job_kill(Job *job) {
    if (job->over) return;
    if (!is_init()) { /* a self-test, outside of any sandbox: its own session is all that may be touched */
        kill(-job->leader, SIGKILL);
        await_end(job, false);
    } else if (is_alone(job)) {
        kill(-1, SIGKILL);
        await_end(job, true);
    } else {
        pid_t supervisor = job->supervisor;
        if (supervisor != 0) stop(supervisor);
        for (int round = 0; round < ROUNDS && send_each(job, SIGKILL) > 0; round++) pause_briefly();
        if (supervisor != 0) kill(supervisor, SIGKILL);
        await_end(job, false);
    }
}

/* Everything that runs here, as an unsuccessful end of each command: its stderr says why. */
void kill_all(const char *reason) {
    if (jobs == NULL && is_init()) kill(-1, SIGKILL);
    for (Job *job = jobs; job != NULL; job = job->next) {
        if (job->gone) continue;
        snprintf(job->note, sizeof job->note, "killed: %s\n", reason);
        job_kill(job);
    }
}

void job_signal(Job *job, int number) {
    if (number < 1 || number > SIGRTMAX) broken("there is no signal %d", number);
    if (job->over) return;
    if (number == SIGKILL)
        job_kill(job);
    else if (is_init())
        send_each(job, number);
    else
        kill(-job->leader, number);
}
