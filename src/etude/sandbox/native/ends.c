#include "ends.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "fault.h"

void ends_close(Ends *child) {
    int fds[] = {child->in, child->out, child->err};
    for (int n = 0; n < 3; n++)
        if (fds[n] >= 0 && (n == 0 || fds[n] != fds[0])) close(fds[n]);
    *child = (Ends){-1, -1, -1};
}

static bool make_pipe(int *ours, int *theirs, bool we_read) {
    int both[2];
    if (pipe2(both, O_CLOEXEC) < 0) return false;
    *ours = both[we_read ? 0 : 1];
    *theirs = both[we_read ? 1 : 0];
    return fcntl(*ours, F_SETFL, O_NONBLOCK) == 0;
}

/* Our side is one file under two numbers, so that reading and writing are waited for apart. */
static bool open_terminal(Job *job, const Request *request, Ends *child) {
    int unlock = 0, main = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    struct winsize size = {.ws_row = request->rows, .ws_col = request->columns};
    if (main < 0) return false;
    job->out.fd = main;
    if (ioctl(main, TIOCSPTLCK, &unlock) < 0 || ioctl(main, TIOCSWINSZ, &size) < 0) return false;
    child->in = child->out = child->err = ioctl(main, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    job->in.fd = fcntl(main, F_DUPFD_CLOEXEC, 3);
    return child->in >= 0 && job->in.fd >= 0;
}

bool ends_open(Job *job, const Request *request, Ends *child) {
    *child = (Ends){-1, -1, -1};
    bool good;
    if (request->has_tty) {
        good = open_terminal(job, request, child);
    } else {
        good = make_pipe(&job->out.fd, &child->out, true) && make_pipe(&job->err.fd, &child->err, true);
        if (good && job->input.size == job->taken && !job->open_stdin)
            good = (child->in = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;
        else
            good = good && make_pipe(&job->in.fd, &child->in, false);
    }
    if (good) return true;
    int code = errno;
    ends_close(child);
    answer_error(job->stream, request->has_tty ? "Unsupported" : "InfraError", "no %s for a command: %s",
                 request->has_tty ? "pseudo-terminal" : "pipe", strerror(code));
    return false;
}
