/* The processes of this sandbox, read from /proc. With a pid namespace of our own these are all there are. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct {
    pid_t pid, parent;
    char state;                /* as in /proc/N/stat */
    unsigned long long born;   /* with the pid it names a process for good */
    bool marked;
} Process;

typedef struct {
    Process *all;
    size_t count;
} Processes;

bool is_init(void); /* whether this process is the first of a pid namespace; if not, kill(-1) would be the end of the host */
bool any_children(void); /* no child means no process: every orphan is process 1's child */
bool any_commands(void); /* the same without the interpreter of warm runs */
Processes processes_read(void); /* all but this one */
void processes_free(Processes *processes);
bool is_zombie(const Process *process);
void mark_below(Processes *processes); /* what is below a marked one becomes marked too */
