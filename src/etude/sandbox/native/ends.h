/* The two sides of a command's standard streams. */
#pragma once
#include "job.h"
#include "spawn.h"

bool ends_open(Job *job, const Request *request, Ends *child); /* false: refused, and answered */
void ends_close(Ends *child);                                   /* the command's, once it has them */
