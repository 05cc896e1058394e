/* Whole trees, in TREE frames: out of a folder (GET), into one (PUT). */
#pragma once
#include <stdbool.h>

#include "wire.h"

enum { CHUNK_BYTES = 1 << 20, TREE_BYTES = 4 << 20 }; /* of one entry, and of one frame's contents */

void serve_get(const Frame *frame);
void serve_put(const Frame *frame);
bool take_tree(const Frame *frame); /* a TREE frame of a PUT; false: no PUT has this stream */
bool put_uses(uint32_t stream);
