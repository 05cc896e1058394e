/* JSON without a tree: a text is checked once, then read in place through cursors, so that a hostile head costs no memory.

   Strings are bytes: a lone surrogate \udc80..\udcff stands for one byte that is not UTF-8 (PEP 383), in both directions. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "bytes.h"

typedef struct {
    const char *at; /* NULL: there is no such value */
    const char *end;
} Json;

typedef enum { TEXT_FINE, TEXT_NO_STRING, TEXT_ZERO, TEXT_SURROGATE, TEXT_NO_MEMORY } TextState;

Json json_object(const char *text, size_t size); /* the whole text, if it is one JSON object */
Json json_get(Json object, const char *key);     /* the last value of that name, as in Python */
bool json_is_null(Json value);
bool json_boolean(Json value, bool *found);
bool json_integer(Json value, long long *found);
bool json_real(Json value, double *found);

/* The words of a C program: a fresh string, ended by a zero byte and holding none. */
TextState json_text(Json value, char **found);

/* `for (Json rest = json_inside(value, '['), one; json_next(&rest, &one);)`; of an object keys and values in turn. */
Json json_inside(Json value, char bracket);
bool json_next(Json *rest, Json *one);

void json_add_text(Bytes *out, const char *text, size_t size); /* with its quotes */
