#include <stdlib.h>
#include <string.h>

#include "json.h"

static unsigned unit(const char *at) { /* of the four digits after \u, which the check has seen */
    unsigned value = 0;
    for (int n = 0; n < 4; n++) {
        char one = at[n];
        value = value << 4 | (unsigned)(one <= '9' ? one - '0' : (one | 0x20) - 'a' + 10);
    }
    return value;
}

static char *put_utf8(char *to, unsigned code) {
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 0x3f));
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    return to;
}

static char plain_escape(char letter) {
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    const char *found = strchr(from, letter);
    return found == NULL ? letter : to[found - from];
}

/* One \u escape, or a pair of them, at `*at` (behind the u). */
static TextState put_escape(const char **at, const char *end, char **to) {
    unsigned code = unit(*at);
    *at += 4;
    if (code >= 0xd800 && code < 0xdc00 && end - *at >= 6 && (*at)[0] == '\\' && (*at)[1] == 'u') {
        unsigned low = unit(*at + 2);
        if (low >= 0xdc00 && low < 0xe000) {
            *at += 6;
            *to = put_utf8(*to, 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00));
            return TEXT_FINE;
        }
    }
    if (code >= 0xdc80 && code <= 0xdcff) {
        *(*to)++ = (char)(code - 0xdc00);
        return TEXT_FINE;
    }
    if (code == 0) return TEXT_ZERO;
    if (code >= 0xd800 && code < 0xe000) return TEXT_SURROGATE;
    *to = put_utf8(*to, code);
    return TEXT_FINE;
}

TextState json_text(Json value, char **found) {
    *found = NULL;
    if (value.at == NULL || *value.at != '"') return TEXT_NO_STRING;
    const char *at = value.at + 1, *end = value.end - 1;
    char *text = malloc((size_t)(end - at) + 1), *to = text; /* an escape is longer than what it stands for */
    if (text == NULL) return TEXT_NO_MEMORY;
    while (at < end) {
        if (*at != '\\') {
            *to++ = *at++;
        } else if (at[1] != 'u') {
            *to++ = plain_escape(at[1]);
            at += 2;
        } else {
            at += 2;
            TextState state = put_escape(&at, end, &to);
            if (state != TEXT_FINE) {
                free(text);
                return state;
            }
        }
    }
    *to = '\0';
    *found = text;
    return TEXT_FINE;
}

/* The code point that starts at `at` if what is there is strict UTF-8, and its length; else 0. */
static int utf8_length(const unsigned char *at, size_t left, unsigned *code) {
    unsigned first = at[0];
    int more = first >= 0xf0 && first <= 0xf4 ? 3 : first >= 0xe0 && first < 0xf0 ? 2 : first >= 0xc2 && first < 0xe0 ? 1 : 0;
    if (more == 0 || left <= (size_t)more) return 0;
    unsigned value = first & (0x3fU >> more);
    for (int n = 1; n <= more; n++) {
        if ((at[n] & 0xc0) != 0x80) return 0;
        value = value << 6 | (at[n] & 0x3f);
    }
    if ((more == 2 && (value < 0x800 || (value >= 0xd800 && value < 0xe000))) || (more == 3 && (value < 0x10000 || value > 0x10ffff)))
        return 0;
    *code = value;
    return more + 1;
}

void json_add_text(Bytes *out, const char *text, size_t size) {
    const unsigned char *at = (const unsigned char *)text;
    bytes_add(out, "\"", 1);
    for (size_t n = 0; n < size;) {
        unsigned code = 0;
        size_t plain = 0;
        while (n + plain < size && at[n + plain] >= 0x20 && at[n + plain] < 0x7f && at[n + plain] != '"' && at[n + plain] != '\\') plain++;
        bytes_add(out, at + n, plain);
        n += plain;
        if (n >= size) break;
        int length = utf8_length(at + n, size - n, &code);
        if (length == 0) {
            bytes_say(out, "\\u%04x", at[n] < 0x80 ? at[n] : 0xdc00U + at[n]);
            length = 1;
        } else if (code < 0x10000) {
            bytes_say(out, "\\u%04x", code);
        } else {
            bytes_say(out, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10), 0xdc00 + ((code - 0x10000) & 0x3ff));
        }
        n += (size_t)length;
    }
    bytes_add(out, "\"", 1);
}
