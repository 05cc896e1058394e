/* One command that runs inside: its pipes, its clock, its answer.

   It ends with its first process, not with its pipes: a child in the background that keeps stdout delays the answer by DRAIN_S at most. */
#pragma once
#include <sys/resource.h>
#include <sys/types.h>

#include "loop.h"
#include "output.h"
#include "processes.h"
#include "wire.h"

#define DRAIN_S 0.2
enum { PIECE_BYTES = 1 << 16, MOST_STDIN_BYTES = 1 << 20 }; /* a pipe's capacity; what may wait of an open stdin */

typedef struct Job {
    struct Job *next;
    uint32_t stream;
    bool streams, has_tty; /* EXEC; all its output is one */
    pid_t leader, supervisor; /* 0: there is none */
    Source report, in, out, err; /* `report`: what the supervisor says; with a tty `in` and `out` are the same file */
    char *left_path; /* where to what its children write after its end; NULL: nowhere */
    Output kept[2];
    Bytes input; /* of which `taken` bytes are in the pipe */
    size_t taken;
    bool open_stdin, wants_more, eof_said; /* as asked for; until eof; the tty's own eof */
    long long credit;
    unsigned long long seq;
    double started_s, deadline_s, ended_s;
    bool over, timed_out, oom, cancelled, gone; /* `gone`: answered, to be freed when this turn's events are through */
    int status;
    double cpu_s;
    long max_rss_kib;
    Process *elders; /* that were there before a command without a supervisor */
    size_t elder_count;
    char note[192]; /* why the runner killed it, for its stderr; empty: it did not */
} Job;

extern Job *jobs;

Job *job_find(uint32_t stream);
void job_end(Job *job, int status, const struct rusage *usage); /* its first process has ended */
double job_wakes_s(const Job *job);                              /* when it next needs attention without an event */
bool job_is_finished(const Job *job, double now);
void job_answer(Job *job); /* and it is gone */
void job_close(Job *job);
void jobs_sweep(void); /* free what is gone */

void job_drain(Job *job, Source *source); /* take what a pipe holds */
void job_send_note(Job *job);              /* of an EXEC, as far as credit goes */
void job_credit(Job *job, long long bytes);
void job_feed(Job *job); /* give its stdin what fits */
void job_stdin(Job *job, const Frame *frame);
