/* A bound on memory where the kernel's own (a control group) may be missing: looked at now and then while anything runs. */
#pragma once

#define WATCH_S 0.1

void memory_watch(void); /* kills the largest process when all together hold more than the spec's memory_mb */
