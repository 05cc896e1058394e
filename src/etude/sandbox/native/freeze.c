#include "freeze.h"

#include <signal.h>

#include "fault.h"
#include "head.h"
#include "loop.h"
#include "processes.h"

#define STOPPING_S 5.0

static bool is_stopped(const Process *process) { return is_zombie(process) || process->state == 'T' || process->state == 't'; }

/* One that waits inside vfork for a stopped child stands still as well, though its state doesn't say so. */
static bool waits_for_stopped(const Processes *list, const Process *process) {
    if (process->state != 'D') return false;
    for (size_t n = 0; n < list->count; n++)
        if (list->all[n].parent == process->pid && is_stopped(list->all + n) && !is_zombie(list->all + n)) return true;
    return false;
}

static bool all_stand(void) {
    Processes list = processes_read();
    bool stand = true;
    for (size_t n = 0; n < list.count && stand; n++) stand = is_stopped(list.all + n) || waits_for_stopped(&list, list.all + n);
    processes_free(&list);
    return stand;
}

static bool freeze(void) {
    double limit_s = now_s() + STOPPING_S;
    do {
        kill(-1, SIGSTOP); /* again, for those that were born meanwhile */
        if (all_stand()) return true;
        pause_briefly();
    } while (now_s() < limit_s);
    return false;
}

void serve_freeze(const Frame *frame) {
    bool frozen = need_boolean(frame, "frozen");
    if (!is_init()) {
        answer_error(frame->stream, "Unsupported", "this process is not the first of a pid namespace: it can't stop all others");
        return;
    }
    bool good = !frozen || freeze();
    if (!good || !frozen) kill(-1, SIGCONT);
    if (good)
        wire_say(OK, frame->stream, "{}");
    else
        answer_error(frame->stream, "InfraError", "not every process stopped within %g s; all go on", STOPPING_S);
}
