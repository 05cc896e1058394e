/* Every process but this one stands still, or goes on: the moment of a snapshot. */
#pragma once
#include "wire.h"

void serve_freeze(const Frame *frame);
