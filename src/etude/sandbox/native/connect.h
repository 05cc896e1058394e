/* A stream to what listens on the sandbox' own loopback, made inside and passed out. */
#pragma once
#include "wire.h"

void serve_connect(const Frame *frame);
