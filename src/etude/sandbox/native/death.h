/* How commands end that do not end by themselves. */
#pragma once
#include "job.h"

void job_kill(Job *job); /* all its processes, however they detached; when it returns they are gone and its status is known */
void kill_all(const char *reason); /* every command, and what earlier ones left */
void job_signal(Job *job, int number);
void reap(void); /* wait for whoever died, and note which command that was */
