/* A supervisor is a subreaper between process 1 and a command that began while another one ran: the command's orphans become its
   children and so stay attributable. It says how the command ended, and stays while anything that the command started lives. */
#pragma once
#include "job.h"
#include "spawn.h"

typedef struct {
    pid_t leader; /* 0: it could not be started, and `failure` says why */
    Failure failure;
    bool over; /* the second report: the leader has ended so */
    int status;
    struct rusage usage;
} Report;

/* The same for a warm run, whose supervisor is a fork of the interpreter. */
pid_t warm_supervised(const char *program, const Request *request, Ends ends, pid_t *leader, int *report, Failure *failure);

void supervisors_remember(pid_t pid);
bool supervisors_forget(pid_t pid); /* whether it was one */
bool supervisors_any(void);
void supervisors_mark(Processes *processes, pid_t except); /* all but one, in a list to be spared */
void report_read(Job *job);                                /* what came over a job's report pipe */
