/* A pipe that a child in the background still writes to after its command has ended: drained, so that the child neither waits for a reader nor
   is ended for want of one; what it writes goes to a file. The same as the Python runner's (`inside/leftover.py`), bounds included. */
#pragma once
#include "loop.h"

#define LEFT_VARIABLE "ETUDE_LEFT" /* of a command's environment: the path of the file; without it nothing is kept */
#define LEFT_HEAD "[output of a process that its command left running]\n"
enum { MOST_LEFT_KEPT = 1 << 20, MOST_LEFT_DRAINED = 1 << 30, MOST_LEFT_PIPES = 64 };

void leftover_take(Source *source, const char *path); /* `source` has none afterwards; `path` NULL: what comes is dropped */
void leftover_drain(Source *source);
