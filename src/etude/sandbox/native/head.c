#include "head.h"


#include "fault.h"

long long need_integer(const Frame *frame, const char *key) {
    long long found = 0;
    if (!json_integer(json_get(frame->head, key), &found)) broken("a frame of type %u has no whole number %s", frame->kind, key);
    return found;
}

double need_real(const Frame *frame, const char *key) {
    double found = 0;
    if (!json_real(json_get(frame->head, key), &found)) broken("a frame of type %u has no number %s", frame->kind, key);
    return found;
}

bool need_boolean(const Frame *frame, const char *key) {
    bool found = false;
    if (!json_boolean(json_get(frame->head, key), &found)) broken("a frame of type %u has no truth value %s", frame->kind, key);
    return found;
}

Json need_list(const Frame *frame, const char *key, char bracket) {
    Json inside = json_inside(json_get(frame->head, key), bracket);
    if (inside.at == NULL) broken("a frame of type %u has no %s", frame->kind, key);
    return inside;
}

char *words_or_refuse(uint32_t stream, Json value, const char *what) {
    char *text;
    switch (json_text(value, &text)) {
        case TEXT_FINE: return text;
        case TEXT_NO_STRING: broken("%s must be a text", what);
        case TEXT_ZERO: answer_error(stream, "UserError", "%s holds a zero byte", what); break;
        case TEXT_SURROGATE: answer_error(stream, "UserError", "%s holds half a surrogate pair: it can't be a name", what); break;
        case TEXT_NO_MEMORY: answer_error(stream, "InfraError", "no memory for %s", what); break;
    }
    return NULL;
}

char *need_path(const Frame *frame) { return words_or_refuse(frame->stream, json_get(frame->head, "path"), "path"); }
