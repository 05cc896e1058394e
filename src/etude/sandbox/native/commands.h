/* RUN and EXEC, and what may follow on their streams. */
#pragma once
#include "wire.h"

void serve_command(Frame *frame);
void serve_follow_up(const Frame *frame); /* CANCEL, STDIN, SIGNAL, RESIZE, CREDIT: ignored once the command has ended */
