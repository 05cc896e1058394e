#include "warm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop.h"
#include "offer.h"
#include "spec.h"

#define PATIENCE_S 10.0 /* an interpreter starts in 50 ms; a loaded machine may need a hundred times that */
enum { CONTROL_FD = 3, CODE_FD = 4, MOST_FDS = 4 };

/* Reads its program as every launched interpreter does (launch/bundle.py). */
static const char START[] =
    "import os,marshal;c,m=marshal.loads(os.pread(4,1<<24,0));os.close(4);exec(c,{'m':m,'fd':3,'runner':-1,'warm':True})";

static int code_fd = -1, server = -1;
static pid_t server_pid;

void warm_prepare(int code, int socket, pid_t pid) {
    code_fd = code;
    server = socket;
    server_pid = pid;
    if (socket >= 0) fcntl(socket, F_SETFD, FD_CLOEXEC);
    if (code >= 0) fcntl(code, F_SETFD, FD_CLOEXEC);
}

bool warm_is_offered(void) { return code_fd >= 0 && spec.python != NULL; }

pid_t warm_pid(void) { return server_pid; }

void warm_forget(void) {
    if (server >= 0) close(server);
    server = -1;
    server_pid = 0;
}

/* With options of the interpreter an exec is more honest. */
bool warm_serves(const Request *request) {
    char **argv = request->argv.list;
    const char *slash = strrchr(argv[0], '/'), *name = slash == NULL ? argv[0] : slash + 1;
    if (!request->warm || (strcmp(name, "python") != 0 && strcmp(name, "python3") != 0) || request->argv.count < 2) return false;
    if (strcmp(argv[1], "-c") == 0 || strcmp(argv[1], "-m") == 0) return request->argv.count > 2;
    return argv[1][0] != '-';
}

static void become_interpreter(int theirs, int null) {
    static char *const environment[] = {"PYTHONHASHSEED=0", "LANG=C.UTF-8", NULL};
    char *const argv[] = {"python", "-P", "-s", "-S", "-B", "-c", (char *)START, NULL};
    sigset_t none;
    setsid();
    int control = fcntl(theirs, F_DUPFD, CODE_FD + 1), code = fcntl(code_fd, F_DUPFD, CODE_FD + 1);
    for (int fd = 0; fd < 3; fd++) dup2(null, fd);
    dup2(control, CONTROL_FD);
    dup2(code, CODE_FD);
    syscall(SYS_close_range, (unsigned)CODE_FD + 1, ~0U, 0U);
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve(spec.python, argv, environment);
    _exit(126);
}

static bool start_interpreter(void) {
    int both[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return false;
    bool good = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both) == 0;
    if (good) {
        offer_begin();
        pid_t pid = (pid_t)syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) become_interpreter(both[1], null);
        int code = errno;
        offer_end();
        close(both[1]);
        server = both[0];
        server_pid = pid > 0 ? pid : 0;
        good = pid > 0;
        if (!good) warm_forget();
        errno = code;
    }
    int code = errno;
    close(null);
    errno = code;
    return good;
}

static void add_list(Bytes *text, const Words *words) {
    for (size_t n = 0; n < words->count; n++) {
        bytes_say(text, n == 0 ? "[" : ",");
        json_add_text(text, words->list[n], strlen(words->list[n]));
    }
    bytes_say(text, words->count == 0 ? "[]" : "]");
}

static void add_user(Bytes *text, const Request *request) {
    if (!request->has_user || request->uid == geteuid()) {
        bytes_say(text, ",\"user\":null");
        return;
    }
    bytes_say(text, ",\"user\":[%u,%u,[", request->uid, request->gid);
    for (size_t n = 0; n < request->group_count; n++) bytes_say(text, n == 0 ? "%u" : ",%u", request->groups[n]);
    bytes_say(text, "]]");
}

/* One message: its length in four bytes, then JSON. */
static Bytes message_of(const Request *request, bool supervised) {
    Bytes text = {0};
    bytes_add(&text, "\0\0\0\0", sizeof(uint32_t));
    bytes_say(&text, "{\"argv\":");
    add_list(&text, &request->argv);
    bytes_say(&text, ",\"env\":");
    add_list(&text, &request->env);
    bytes_say(&text, ",\"cwd\":");
    json_add_text(&text, request->cwd, strlen(request->cwd));
    bytes_say(&text, ",\"workdir\":");
    json_add_text(&text, spec.workdir, strlen(spec.workdir));
    add_user(&text, request);
    if (isinf(request->timeout_s))
        bytes_say(&text, ",\"timeout_s\":null");
    else
        bytes_say(&text, ",\"timeout_s\":%f", request->timeout_s);
    bytes_say(&text, ",\"data_mb\":%lld,\"address_mb\":%lld,\"disk_mb\":%lld,\"pids\":%lld", spec.data_mb, spec.address_mb, spec.disk_mb, spec.pids);
    /* The interpreter counts as a process of the user, in addition to this one. */
    bytes_say(&text, ",\"elsewhere\":1,\"tty\":%s,\"supervised\":%s}", request->has_tty ? "true" : "false", supervised ? "true" : "false");
    if (!text.failed) {
        uint32_t length = htonl((uint32_t)(text.size - sizeof length));
        memcpy(text.data, &length, sizeof length);
    }
    return text;
}

static bool await_ready(short events, double until_s) {
    struct pollfd ready = {server, events, 0};
    double left_ms = (until_s - now_s()) * 1000;
    return left_ms > 0 && poll(&ready, 1, (int)left_ms + 1) > 0;
}

static bool send_message(const Bytes *message, const int *fds, size_t count, double until_s) {
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(MOST_FDS * sizeof(int))];
    } rights = {0};
    for (size_t at = 0; at < message->size;) {
        struct iovec piece = {message->data + at, message->size - at};
        struct msghdr whole = {.msg_iov = &piece, .msg_iovlen = 1};
        if (at == 0) {
            whole.msg_control = rights.room;
            whole.msg_controllen = CMSG_SPACE(count * sizeof *fds);
            rights.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(count * sizeof *fds), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
            memcpy(CMSG_DATA(&rights.head), fds, count * sizeof *fds);
        }
        ssize_t sent = sendmsg(server, &whole, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) at += (size_t)sent;
        if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
        if (sent < 0 && !await_ready(POLLOUT, until_s)) return false;
    }
    return true;
}

/* The process, or 0: there is none, and `code` says why if the interpreter could say it. */
static pid_t ask(const Bytes *message, const int *fds, size_t count, int *code) {
    int32_t answer[2] = {0, 0};
    double until_s = now_s() + PATIENCE_S;
    *code = 0;
    kill(server_pid, SIGCONT); /* it may have been stopped with all others, or by a command */
    if (!send_message(message, fds, count, until_s) || !await_ready(POLLIN, until_s)) return 0;
    if (recv(server, answer, sizeof answer, MSG_DONTWAIT) != sizeof answer) return 0;
    *code = answer[1];
    return answer[0];
}

static void end_interpreter(void) {
    if (server_pid > 0) kill(server_pid, SIGKILL); /* `reap` waits for it */
    warm_forget();
}

pid_t warm_spawn(const Request *request, Ends ends, int report, Failure *failure) {
    int fds[MOST_FDS] = {ends.in, ends.out, ends.err, report}, code = 0;
    Bytes message = message_of(request, report >= 0);
    *failure = (Failure){STAGE_FORK, message.failed ? ENOMEM : EIO};
    pid_t pid = 0;
    for (int round = 0; round < 2 && pid == 0 && code == 0 && !message.failed; round++) { /* a command may have killed it meanwhile */
        if (server_pid == 0 && !start_interpreter()) {
            failure->code = errno;
            break;
        }
        pid = ask(&message, fds, report >= 0 ? 4 : 3, &code);
        if (code != 0) failure->code = code;
        if (pid == 0 && code == 0) end_interpreter();
    }
    if (pid > 0) failure->stage = STAGE_NONE;
    bytes_free(&message);
    return pid;
}
