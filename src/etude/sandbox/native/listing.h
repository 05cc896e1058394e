/* Whole folders in one answer. */
#pragma once
#include "wire.h"

void serve_list(const Frame *frame);
void serve_export(const Frame *frame);
void answer_walk(uint32_t stream, const char *path, int result); /* what `walk` returned, where it was not 0 */
