#include "spawn.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spec.h"
#include "warm.h"

enum { JOB_FILES = 1024 }; /* the usual default */

static void limit(int which, rlim_t value) {
    struct rlimit old;
    if (getrlimit(which, &old) < 0) return;
    if (value > old.rlim_max) value = old.rlim_max;
    setrlimit(which, &(struct rlimit){value, value});
}

/* The runner counts too, and the interpreter of warm runs. */
static rlim_t processes_bound(void) { return (rlim_t)spec.pids + 1 + (warm_pid() > 0); }

static void set_limits(const Request *request) {
    if (spec.data_mb > 0) limit(RLIMIT_DATA, (rlim_t)spec.data_mb << 20); /* 0: a control group bounds the memory */
    if (spec.address_mb > 0) limit(RLIMIT_AS, (rlim_t)spec.address_mb << 20);
    limit(RLIMIT_FSIZE, ((rlim_t)spec.disk_mb + 1) << 20); /* above the tmpfs: "no space left" comes first, not a signal */
    limit(RLIMIT_NOFILE, JOB_FILES);
    limit(RLIMIT_NPROC, processes_bound());
    /* A process in the background may outlive the time-out; it may not burn a core for ever. */
    if (!isinf(request->timeout_s)) limit(RLIMIT_CPU, (rlim_t)request->timeout_s + 2);
}

static int become(const Request *request) {
    if (!request->has_user || request->uid == geteuid()) return 0;
    /* The system calls themselves: libc's wrappers look for threads, and its state is not this process'. */
    if (syscall(SYS_setgroups, request->group_count, request->groups) < 0) return -1;
    if (syscall(SYS_setresgid, request->gid, request->gid, request->gid) < 0) return -1;
    return (int)syscall(SYS_setresuid, request->uid, request->uid, request->uid);
}

/* In the child: what goes wrong is left where the parent finds it. */
static void child(const char *program, const Request *request, Ends ends, volatile ChildReport *child_report) {
    int streams[] = {ends.in, ends.out, ends.err};
    sigset_t none;
    setsid();
    child_report->pid = getpid();
    child_report->stage = STAGE_TERMINAL;
    if (!request->has_tty || ioctl(ends.in, TIOCSCTTY, 0) == 0) {
        for (int n = 0; n < 3; n++) dup2(streams[n], n);
        set_limits(request);
        child_report->stage = STAGE_USER;
        if (become(request) == 0) {
            child_report->stage = STAGE_EXEC;
            signal(SIGPIPE, SIG_DFL);
            sigemptyset(&none);
            sigprocmask(SIG_SETMASK, &none, NULL);
            execve(program, request->argv.list, request->env.list);
        }
    }
    child_report->code = errno;
    _exit(126);
}

volatile ChildReport *child_report_page(void) {
    static volatile ChildReport *page;
    if (page == NULL) {
        void *fresh = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (fresh != MAP_FAILED) page = fresh;
    }
    return page;
}

pid_t spawn(const char *program, const Request *request, Ends ends, Failure *failure) {
    volatile ChildReport *child_report = child_report_page();
    if (child_report == NULL) {
        *failure = (Failure){STAGE_FORK, errno};
        return 0;
    }
    *child_report = (ChildReport){0};
    struct rlimit own, lowered;
    getrlimit(RLIMIT_NPROC, &own);
    lowered = own;
    if (lowered.rlim_cur > processes_bound()) lowered.rlim_cur = processes_bound();
    setrlimit(RLIMIT_NPROC, &lowered); /* a command more must fail here as a fork in a command would */
    /* As vfork, this goes on when the exec is done or has failed, but the memory is a copy: the peak of the runner's own would else
       count as the command's. There is little to copy. */
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) child(program, request, ends, child_report);
    int code = errno;
    setrlimit(RLIMIT_NPROC, &own);
    *failure = pid < 0 ? (Failure){STAGE_FORK, code} : (Failure){child_report->code != 0 ? child_report->stage : STAGE_NONE, child_report->code};
    if (failure->stage == STAGE_NONE) return pid;
    if (pid > 0) waitpid(pid, NULL, 0);
    return 0;
}
