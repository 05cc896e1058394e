/* What goes wrong, as the client hears of it. */
#pragma once
#include <stdint.h>

#include "bytes.h"

void answer_error(uint32_t stream, const char *kind, const char *format, ...) __attribute__((format(printf, 3, 4)));
void answer_errno(uint32_t stream, const char *path, int code); /* of a system call; the kind follows from the code */

/* From here on errors on a stream are kept (the first of them) and not sent; NULL ends that. `broken` is always said. */
void keep_errors(Bytes *kept);

/* The client broke the protocol, or this process can't go on: says so on stream 0 and ends. */
void broken(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void give_up(const char *step, int code) __attribute__((noreturn));
