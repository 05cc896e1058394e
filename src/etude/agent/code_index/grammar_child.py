"""The process in which grammars parse: `python -m etude.agent.code_index.grammar_child`.

A request is a line of JSON (`task`, `grammar`, `bytes`) and that many bytes of source on standard input; the answer is a line of JSON on
standard output. It ends with its input. `grammar_process` is the other end.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
from typing import Any

from etude.agent.code_index.definitions import PROBE_BYTES, PROBE_S, TooHard, read_syntax
from etude.agent.code_index.languages import parser

# A source of the largest size that is indexed takes some 100 MiB; a grammar that asks for more has lost its way.
MEMORY_BYTES = 4 << 30


def first_error(grammar: str, source: bytes) -> int:
    """The first line with an error, from 1; 0 for none. Raises TooHard."""
    began_s = time.thread_time()
    root = parser(grammar).parse(source[:PROBE_BYTES]).root_node
    if time.thread_time() - began_s > PROBE_S:
        raise TooHard(f"{grammar}: {min(len(source), PROBE_BYTES)} bytes took more than {PROBE_S} s")
    node = root if len(source) <= PROBE_BYTES else parser(grammar).parse(source).root_node
    if not node.has_error:
        return 0
    while inner := next((child for child in node.children if child.has_error and not child.is_error), None):
        node = inner
    error = next((child for child in node.children if child.is_error or child.is_missing), node)
    return error.start_point[0] + 1


def _syntax(grammar: str, source: bytes) -> dict[str, Any]:
    syntax = read_syntax(grammar, source)
    return {"definitions": [vars(definition) for definition in syntax.definitions], "prose": syntax.prose}


TASKS = {"syntax": _syntax, "first_error": first_error}


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; this process ends with its input
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    bound = MEMORY_BYTES if most == resource.RLIM_INFINITY else min(MEMORY_BYTES, most)
    resource.setrlimit(resource.RLIMIT_AS, (bound, most))
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        source = sys.stdin.buffer.read(request["bytes"])
        try:
            answer = {"answer": TASKS[request["task"]](request["grammar"], source)}
        except (TooHard, MemoryError) as error:
            answer = {"too_hard": str(error) or "out of memory"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
