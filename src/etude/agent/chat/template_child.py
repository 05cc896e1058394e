"""The process in which a checkpoint's chat template is compiled and rendered: foreign code, in jinja's sandbox, within limits of the kernel.

A separate script (`python -I`): it imports jinja2 and nothing of Etude. A request is a line of JSON on stdin, its answer a line on stdout.

    {"source": ..., "date": "2025-08-05"}                 {"text": ""}, or {"refused": why}
    {"render": {"messages": [...], ...}}                  {"text": ...}, or {"refused": why}
"""

import json
import resource
import sys
from datetime import datetime

from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

MEMORY_BYTES = 1 << 30
CPU_S = 60
MOST_CHARS = 16 << 20


class Generation(Extension):
    """The block with which a template says what the model writes. Its text is part of the conversation as any other."""

    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def tojson(value, ensure_ascii=False, **options):
    """Unlike jinja's own, without escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def refuse(message):
    raise ValueError(message)


def compiled(source, date):
    """As `transformers` compiles it."""
    room = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
    room.filters["tojson"] = tojson
    room.globals["raise_exception"] = refuse
    room.globals["strftime_now"] = lambda form: datetime.fromisoformat(date).strftime(form)
    return room.from_string(source)


def rendered(template, values):
    """Piece by piece, so that a text without end is not held."""
    pieces, held = [], 0
    for piece in template.generate(**values):
        held += len(piece)
        if held > MOST_CHARS:
            raise ValueError(f"it writes more than {MOST_CHARS:,} characters")
        pieces.append(piece)
    return "".join(pieces)


def main():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    template = None
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if "source" in request:
                template, text = compiled(request["source"], request["date"]), ""
            else:
                text = rendered(template, request["render"])
            answer = {"text": text}
        except Exception as error:  # noqa: BLE001 - whatever a template raises is its refusal
            answer = {"refused": str(error)[:1000] or type(error).__name__}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
