/* The bytes of a command: out of its pipes under the client's credit, into its stdin as it reads. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "fault.h"
#include "head.h"
#include "job.h"

static char piece[PIECE_BYTES]; /* one for all: nothing is read while another piece is held */

static void watch_outputs(Job *job) {
    uint32_t events = job->streams && job->credit <= 0 ? 0 : EPOLLIN;
    source_watch(&job->out, events);
    source_watch(&job->err, events);
}

static void send_output(Job *job, int fd, size_t size) {
    Bytes head = {0};
    bytes_say(&head, "{\"fd\":%d,\"seq\":%llu}", fd, job->seq++);
    wire_send(OUTPUT, job->stream, &head, &(struct iovec){piece, size}, 1, -1);
    bytes_free(&head);
    job->credit -= (long long)size;
    watch_outputs(job);
}

void job_drain(Job *job, Source *source) {
    size_t room = PIECE_BYTES;
    if (job->streams && job->credit <= 0) return watch_outputs(job);
    if (job->streams && job->credit < (long long)room) room = (size_t)job->credit;
    ssize_t got = read(source->fd, piece, room);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return source_close(source); /* its end; a tty without anybody at the other side says EIO */
    if (job->streams)
        send_output(job, source == &job->out ? 1 : 2, (size_t)got);
    else
        output_add(&job->kept[source == &job->err], piece, (size_t)got);
}

void job_send_note(Job *job) {
    size_t size = strlen(job->note);
    if (job->credit < (long long)size) size = job->credit > 0 ? (size_t)job->credit : 0;
    if (size == 0) return;
    memcpy(piece, job->note, size);
    send_output(job, 2, size);
}

void job_credit(Job *job, long long bytes) {
    if (bytes < 0 || job->credit > (1LL << 60)) broken("CREDIT of %lld bytes on stream %u", bytes, job->stream);
    if (job->over && job->credit <= 0) job->ended_s = now_s(); /* the drain time runs while the client listens */
    job->credit += bytes;
    watch_outputs(job);
}

static void say_spent(const Job *job, size_t bytes) {
    if (!job->open_stdin || bytes == 0) return;
    Bytes head = {0};
    bytes_say(&head, "{\"bytes\":%zu}", bytes);
    wire_send(SPENT, job->stream, &head, NULL, 0, -1);
    bytes_free(&head);
}

/* Nobody reads it any more: what waits is let go, and counts as taken so that the client doesn't wait for ever. */
static void drop_input(Job *job) {
    say_spent(job, job->input.size - job->taken);
    bytes_free(&job->input);
    job->taken = 0;
    source_close(&job->in);
}

static void end_input(Job *job) {
    bytes_free(&job->input);
    job->taken = 0;
    if (job->wants_more) return source_watch(&job->in, 0);
    if (job->has_tty && !job->eof_said) { /* a terminal has no end of its own: the character for it */
        job->eof_said = write(job->in.fd, "\x04", 1) == 1;
        if (!job->eof_said && errno == EAGAIN) return source_watch(&job->in, EPOLLOUT);
    }
    source_close(&job->in);
}

void job_feed(Job *job) {
    size_t before = job->taken;
    while (job->in.fd >= 0 && job->taken < job->input.size) {
        ssize_t put = write(job->in.fd, job->input.data + job->taken, job->input.size - job->taken);
        if (put < 0 && errno != EAGAIN && errno != EINTR) {
            say_spent(job, job->taken - before);
            return drop_input(job);
        }
        if (put < 0) break;
        job->taken += (size_t)put;
    }
    say_spent(job, job->taken - before);
    if (job->in.fd < 0) return;
    if (job->taken < job->input.size) return source_watch(&job->in, EPOLLOUT);
    end_input(job);
}

void job_stdin(Job *job, const Frame *frame) {
    bool eof = need_boolean(frame, "eof");
    if (!job->open_stdin) broken("STDIN on stream %u, whose stdin was given with it", job->stream);
    if (!job->wants_more) return; /* ended, as far as anybody here is concerned */
    if (job->in.fd < 0) return say_spent(job, frame->blob_size);
    if (job->input.size - job->taken + frame->blob_size > MOST_STDIN_BYTES)
        broken("stream %u: more than %d bytes of stdin wait; the client sends what SPENT gave back", job->stream, MOST_STDIN_BYTES);
    if (job->taken > 0) {
        memmove(job->input.data, job->input.data + job->taken, job->input.size - job->taken);
        job->input.size -= job->taken;
        job->taken = 0;
    }
    bytes_add(&job->input, frame->blob, frame->blob_size);
    if (job->input.failed) broken("no memory for stdin");
    job->wants_more = !eof;
    job_feed(job);
}
