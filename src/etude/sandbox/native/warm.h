/* Warm runs: an interpreter that is a process of the sandbox forks a child for each Python program. The child has this process as its
   parent, so it is a command as any other. The interpreter starts with the first warm run, and again if a command has killed it. */
#pragma once
#include "spawn.h"

/* The descriptor of the interpreter's program; -1: this sandbox has no interpreter. Then the socket and the number of one that runs
   already; -1 and 0: the first warm run starts it. */
void warm_prepare(int code, int socket, pid_t pid);
bool warm_is_offered(void);
bool warm_serves(const Request *request); /* whether the interpreter can run this command line; else it is executed */
pid_t warm_pid(void);             /* of the interpreter; 0: there is none */
void warm_forget(void);           /* it has ended */

/* As `spawn`: the new process, or 0. `report`: where its supervisor says how it ends, as in `supervise.h`; -1: it gets no supervisor. */
pid_t warm_spawn(const Request *request, Ends ends, int report, Failure *failure);
