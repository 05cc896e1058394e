/* What a request must hold. A key that is missing or of another kind breaks the protocol; a text that no file can be named by does not. */
#pragma once
#include <stdbool.h>

#include "wire.h"

long long need_integer(const Frame *frame, const char *key);
double need_real(const Frame *frame, const char *key);
bool need_boolean(const Frame *frame, const char *key);
Json need_list(const Frame *frame, const char *key, char bracket); /* to be walked by json_next */
char *need_path(const Frame *frame);                               /* allocated; NULL: refused, and answered */
char *words_or_refuse(uint32_t stream, Json value, const char *what); /* the same for any text */
