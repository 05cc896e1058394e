#include "loop.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <time.h>
#include <unistd.h>

#include "fault.h"

static int poll_fd = -1;

double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void pause_briefly(void) { nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL); }

void loop_open(void) {
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (poll_fd < 0) give_up("epoll", errno);
}

int loop_wait(struct epoll_event *events, int most, double until_s) {
    int wait_ms = -1;
    if (!isinf(until_s)) {
        double left_ms = ceil((until_s - now_s()) * 1000);
        wait_ms = left_ms <= 0 ? 0 : left_ms > INT_MAX ? INT_MAX : (int)left_ms;
    }
    int count = epoll_wait(poll_fd, events, most, wait_ms);
    if (count < 0 && errno != EINTR) give_up("epoll", errno);
    return count < 0 ? 0 : count;
}

void source_watch(Source *source, uint32_t events) {
    if (source->fd < 0 || source->events == events) return;
    struct epoll_event wanted = {.events = events, .data.ptr = source};
    int what = events == 0 ? EPOLL_CTL_DEL : source->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    if (epoll_ctl(poll_fd, what, source->fd, &wanted) < 0) give_up("epoll", errno);
    source->events = events;
}

void source_close(Source *source) {
    if (source->fd < 0) return;
    source_watch(source, 0); /* its file may be open elsewhere too: closing alone would leave it in the set */
    close(source->fd);
    source->fd = -1;
}
