/* What this process waits for: descriptors with an owner, in one epoll. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

typedef enum { SOURCE_CONTROL, SOURCE_CHILDREN, SOURCE_REPORT, SOURCE_STDIN, SOURCE_STDOUT, SOURCE_STDERR, SOURCE_CONNECT, SOURCE_LEFTOVER } SourceKind;

typedef struct {
    int fd; /* -1: none, or closed since */
    uint32_t events;
    SourceKind kind;
    struct Job *job;
} Source;

void loop_open(void);
int loop_wait(struct epoll_event *events, int most, double until_s); /* `until_s` in monotonic time; INFINITY: no end */
void source_watch(Source *source, uint32_t events);                   /* 0: not for now */
void source_close(Source *source);

double now_s(void); /* monotonic */
void pause_briefly(void);
