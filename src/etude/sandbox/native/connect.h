/* A stream to what listens on the sandbox' own loopback, made inside and passed out. Nobody waits for it but who asked. */
#pragma once
#include "loop.h"
#include "wire.h"

void serve_connect(const Frame *frame);
void connect_arrived(Source *source);
void connect_check(void); /* those that took too long; frees what is through */
double connect_wakes_s(void);
bool connect_uses(uint32_t stream);
