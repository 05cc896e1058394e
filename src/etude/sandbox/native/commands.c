#include "commands.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "death.h"
#include "ends.h"
#include "fault.h"
#include "files.h"
#include "head.h"
#include "leftover.h"
#include "offer.h"
#include "spec.h"
#include "supervise.h"
#include "warm.h"

static Job *job_new(Frame *frame, const Request *request) {
    Job *job = calloc(1, sizeof *job);
    if (job == NULL) return NULL;
    job->stream = frame->stream;
    job->streams = request->streams;
    job->has_tty = request->has_tty;
    job->open_stdin = job->wants_more = request->open_stdin;
    job->credit = request->credit;
    const char *left = request_variable(request, LEFT_VARIABLE);
    if (left != NULL) job->left_path = strdup(left);
    job->kept[0].limit = job->kept[1].limit = request->most_output;
    job->started_s = now_s();
    job->deadline_s = job->started_s + request->timeout_s;
    Source none = {.fd = -1, .job = job};
    job->report = job->in = job->out = job->err = none;
    job->report.kind = SOURCE_REPORT;
    job->in.kind = SOURCE_STDIN;
    job->out.kind = SOURCE_STDOUT;
    job->err.kind = SOURCE_STDERR;
    if (frame->blob_size > 0) { /* the frame's memory is taken over: stdin may be large */
        size_t size = (size_t)(frame->blob + frame->blob_size - frame->payload);
        job->input = (Bytes){.data = frame->payload, .size = size, .room = size};
        job->taken = size - frame->blob_size;
        frame->payload = NULL;
    }
    return job;
}

/* The command ends before it begins, in the words of a shell: they go the way of its own stderr. */
static void end_unborn(Job *job, const Ends *child, int code, const char *message) {
    char line[PIPE_BUF];
    int size = snprintf(line, sizeof line, "%s\n", message);
    if (size >= (int)sizeof line) size = sizeof line - 1;
    write_all(child->err, line, (size_t)size); /* a fresh pipe holds it all */
    struct rusage none = {0};
    job_end(job, W_EXITCODE(code, 0), &none);
    job->ended_s = job->started_s;
}

static bool start(Job *job, const char *program, const Request *request, Ends child, Failure *failure) {
    if (jobs != NULL && is_init()) {
        job->supervisor = (warm_serves(request) ? warm_supervised : spawn_supervised)(program, request, child, &job->leader, &job->report.fd, failure);
        return job->supervisor != 0;
    }
    if (is_init() && any_children()) {
        Processes list = processes_read();
        job->elders = list.all;
        job->elder_count = list.count;
    }
    if (warm_serves(request)) {
        job->leader = warm_spawn(request, child, -1, failure);
        return job->leader != 0;
    }
    offer_begin();
    job->leader = spawn(program, request, child, failure);
    offer_end();
    return job->leader != 0;
}

/* True: it never ran, and that was answered; else its stderr says why. */
static bool explain(Job *job, const Request *request, const Ends *child, Failure failure) {
    const char *name = request->argv.list[0];
    if (failure.code == EAGAIN) {
        answer_error(job->stream, "PidsExhausted", "'%s' could not be started: %s (limit: %lld processes)", name, strerror(EAGAIN), spec.pids);
    } else if (failure.stage == STAGE_USER) {
        answer_error(job->stream, "Unsupported", "user %u: %s; make the sandbox with uid_mode=\"range\"", request->uid, strerror(failure.code));
    } else if (failure.stage == STAGE_EXEC) {
        char *message = NULL;
        int size = asprintf(&message, "%s: %s", name, strerror(failure.code));
        end_unborn(job, child, 126, size < 0 ? strerror(failure.code) : message);
        if (size >= 0) free(message);
        return false;
    } else {
        answer_error(job->stream, "InfraError", "'%s' could not be started: %s", name, strerror(failure.code));
    }
    return true;
}

static void admit(Job *job) {
    job->next = jobs;
    jobs = job;
    source_watch(&job->report, EPOLLIN);
    job_credit(job, 0); /* watches the outputs, if there is credit */
    job_feed(job);
}

static void begin(Job *job, const Request *request) {
    Ends child;
    bool unborn = !ends_open(job, request, &child);
    if (!unborn) {
        int code;
        char *message = NULL, *program = program_find(request, &code, &message);
        Failure failure = {0};
        if (program == NULL)
            end_unborn(job, &child, code, message == NULL ? strerror(ENOMEM) : message);
        else if (!start(job, program, request, child, &failure))
            unborn = explain(job, request, &child, failure);
        free(message);
        free(program);
    }
    ends_close(&child);
    if (unborn) job_close(job);
    admit(job);
}

void serve_command(Frame *frame) {
    Request request;
    if (request_read(frame, &request)) {
        Job *job = job_new(frame, &request);
        if (job == NULL)
            answer_error(frame->stream, "InfraError", "no memory for a command");
        else
            begin(job, &request);
    }
    request_free(&request);
}

void serve_follow_up(const Frame *frame) {
    Job *job = job_find(frame->stream);
    if (job == NULL) return;
    if (frame->kind == CANCEL) {
        job->cancelled = true;
        job_kill(job);
    } else if (!job->streams) {
        broken("a frame of type %u on the stream of a RUN", frame->kind);
    } else if (frame->kind == STDIN) {
        job_stdin(job, frame);
    } else if (frame->kind == SIGNAL) {
        job_signal(job, (int)need_integer(frame, "number"));
    } else if (frame->kind == CREDIT) {
        job_credit(job, need_integer(frame, "bytes"));
    } else {
        struct winsize size = {.ws_row = (unsigned short)need_integer(frame, "rows"), .ws_col = (unsigned short)need_integer(frame, "columns")};
        if (job->has_tty && job->out.fd >= 0) ioctl(job->out.fd, TIOCSWINSZ, &size);
    }
}
