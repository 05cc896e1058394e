#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

enum { DEEPEST = 64 }; /* heads nest three deep; the check recurses */

static const char *skip_blank(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) at++;
    return at;
}

static bool is_digit(char one) { return one >= '0' && one <= '9'; }

static int hex_digit(char one) {
    if (is_digit(one)) return one - '0';
    if (one >= 'a' && one <= 'f') return one - 'a' + 10;
    if (one >= 'A' && one <= 'F') return one - 'A' + 10;
    return -1;
}

/* What follows the string that starts at `at`; NULL: it is none. */
static const char *string_end(const char *at, const char *end) {
    for (at++; at < end; at++) {
        unsigned char one = (unsigned char)*at;
        if (one == '"') return at + 1;
        if (one < 0x20 || one > 0x7f) return NULL;
        if (one != '\\') continue;
        if (++at >= end) return NULL;
        if (*at == 'u') {
            if (end - at < 5) return NULL;
            for (int n = 1; n <= 4; n++)
                if (hex_digit(at[n]) < 0) return NULL;
            at += 4;
        } else if (strchr("\"\\/bfnrt", *at) == NULL || *at == '\0') {
            return NULL;
        }
    }
    return NULL;
}

static const char *digits_end(const char *at, const char *end) {
    const char *start = at;
    while (at < end && is_digit(*at)) at++;
    return at == start ? NULL : at;
}

static const char *number_end(const char *at, const char *end) {
    if (at < end && *at == '-') at++;
    const char *start = at;
    at = digits_end(at, end);
    if (at == NULL || (*start == '0' && at - start > 1)) return NULL;
    if (at < end && *at == '.' && (at = digits_end(at + 1, end)) == NULL) return NULL;
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-')) at++;
        at = digits_end(at, end);
    }
    return at;
}

static const char *word_end(const char *at, const char *end) {
    static const char *const words[] = {"true", "false", "null"};
    for (size_t n = 0; n < sizeof words / sizeof *words; n++) {
        size_t size = strlen(words[n]);
        if ((size_t)(end - at) >= size && memcmp(at, words[n], size) == 0) return at + size;
    }
    return NULL;
}

static const char *value_end(const char *at, const char *end, int depth);

static const char *members_end(const char *at, const char *end, int depth) {
    char bracket = *at, closing = bracket == '{' ? '}' : ']';
    at = skip_blank(at + 1, end);
    if (at < end && *at == closing) return at + 1;
    while (at < end) {
        if (bracket == '{') {
            if (*at != '"' || (at = string_end(at, end)) == NULL) return NULL;
            at = skip_blank(at, end);
            if (at >= end || *at != ':') return NULL;
            at = skip_blank(at + 1, end);
        }
        if ((at = value_end(at, end, depth + 1)) == NULL) return NULL;
        at = skip_blank(at, end);
        if (at >= end) return NULL;
        if (*at == closing) return at + 1;
        if (*at != ',') return NULL;
        at = skip_blank(at + 1, end);
    }
    return NULL;
}

static const char *value_end(const char *at, const char *end, int depth) {
    if (at >= end || depth > DEEPEST) return NULL;
    switch (*at) {
        case '{':
        case '[': return members_end(at, end, depth);
        case '"': return string_end(at, end);
        case 't':
        case 'f':
        case 'n': return word_end(at, end);
        default: return number_end(at, end);
    }
}

Json json_object(const char *text, size_t size) {
    const char *end = text + size, *at = skip_blank(text, end);
    if (at >= end || *at != '{') return (Json){0};
    const char *stop = value_end(at, end, 0);
    if (stop == NULL || skip_blank(stop, end) != end) return (Json){0};
    return (Json){at, stop};
}

Json json_inside(Json value, char bracket) {
    if (value.at == NULL || *value.at != bracket) return (Json){0};
    return (Json){value.at + 1, value.end - 1};
}

bool json_next(Json *rest, Json *one) {
    if (rest->at == NULL) return false;
    const char *at = rest->at;
    while (at < rest->end && (*at == ',' || *at == ':' || skip_blank(at, at + 1) > at)) at++;
    if (at >= rest->end) return false;
    *one = (Json){at, value_end(at, rest->end, 0)};
    rest->at = one->end;
    return true;
}

Json json_get(Json object, const char *key) {
    Json found = {0}, rest = json_inside(object, '{'), name, value;
    size_t size = strlen(key);
    while (json_next(&rest, &name) && json_next(&rest, &value))
        if ((size_t)(name.end - name.at) == size + 2 && memcmp(name.at + 1, key, size) == 0) found = value;
    return found;
}

bool json_is_null(Json value) { return value.at != NULL && *value.at == 'n'; }

bool json_boolean(Json value, bool *found) {
    if (value.at == NULL || (*value.at != 't' && *value.at != 'f')) return false;
    *found = *value.at == 't';
    return true;
}

static bool copy_number(Json value, char (*text)[64]) {
    size_t size = value.at == NULL ? 0 : (size_t)(value.end - value.at);
    if (size == 0 || size >= sizeof *text || (*value.at != '-' && !is_digit(*value.at))) return false;
    memcpy(*text, value.at, size);
    (*text)[size] = '\0';
    return true;
}

bool json_integer(Json value, long long *found) {
    char text[64], *stop;
    if (!copy_number(value, &text)) return false;
    errno = 0;
    *found = strtoll(text, &stop, 10);
    return errno == 0 && *stop == '\0';
}

bool json_real(Json value, double *found) {
    char text[64], *stop;
    if (!copy_number(value, &text)) return false;
    *found = strtod(text, &stop);
    return *stop == '\0' && isfinite(*found);
}
