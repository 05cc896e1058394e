/* Single files: read, written, removed, looked at. Each answers on its stream. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

enum { DEEPEST_FOLDER = 128, MODE_KEPT = -1 }; /* deeper than any repository; bounds the walk of a hostile tree */

void serve_read(const Frame *frame);
void serve_write(const Frame *frame);
void serve_remove(const Frame *frame);
void serve_stat(const Frame *frame);

/* Whole or not at all; missing folders are made. True: written, and nothing answered yet. */
bool file_write(uint32_t stream, const char *path, const char *data, size_t size, int mode);
int remove_below(int folder, const char *name, int depth); /* 0, or -1 and errno (EMLINK: too deep) */

/* A nameless-looking file beside `name`, to be renamed to it: its descriptor, or -1 and errno. */
int fresh_file(int folder, char (*name)[32]);
bool write_all(int fd, const char *data, size_t size);
