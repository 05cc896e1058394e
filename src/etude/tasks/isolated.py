"""Requests to graded code in a sandbox, answered from a process that the code can't reach (`running/inside/etude_replies.py`).

Promise 9: all that graded code can send is its replies, one to each request while that request is open. Whatever a sandbox sends is read
without an exception: a line that says anything else is no reply.
"""

from __future__ import annotations

import ast
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as resources
from typing import Any

from etude.sandbox.errors import Unsupported
from etude.sandbox.protocol import Disposable
from etude.sandbox.spec import ExecResult

OUT_OF_TURN, UNPROTECTED = "-1", "-2"  # what the parent inside says in place of a request's number


@dataclass(frozen=True)
class Replies:
    """By request the text of its reply, None where none came; `refused`: the code replied out of turn, so that nothing counts."""

    texts: list[str | None]
    result: ExecResult
    refused: bool = False


async def replies(
    sandbox: Disposable,
    batches: Sequence[Sequence[Any]],
    setup: Any = None,
    *,
    python: str,
    timeout_s: float,
    max_output_bytes: int,
    warm: bool = False,
    env: Mapping[str, str] | None = None,
) -> Replies:
    """Replies to the requests of all batches, in their order; those of one batch may be read by the code before it replies to the first.
    Requests and setup are plain Python values. Raises UserError, InfraError."""
    nonce = secrets.token_hex(8)
    result = await sandbox.run(
        [python, "-c", _program()], stdin=repr((nonce, setup, [list(batch) for batch in batches])).encode(), timeout_s=timeout_s,
        max_output_bytes=max_output_bytes, warm=warm, env=dict(env or {}),
    )  # fmt: skip
    framed = _framed(result.out, nonce)
    if UNPROTECTED in framed:
        raise Unsupported(
            "prctl(PR_SET_DUMPABLE) is refused in this sandbox: graded code can't be kept from its grader"
        )
    refused = OUT_OF_TURN in framed
    numbers = map(str, range(sum(map(len, batches))))
    texts = [None if refused else _literal(framed.get(number, [])) for number in numbers]
    return Replies(texts, result, refused)


@cache
def _program() -> str:
    return (resources("etude.tasks.running") / "inside" / "etude_replies.py").read_text(encoding="utf-8")


def _framed(out: bytes, nonce: str) -> dict[str, list[str]]:
    """The texts behind the nonce, by the word after it. Ordinary prints may precede a frame on its line."""
    framed: dict[str, list[str]] = {}
    for line in out.decode("utf-8", errors="replace").split("\n"):
        _, found, rest = line.partition(nonce + " ")
        if found:
            number, _, text = rest.partition(" ")
            framed.setdefault(number, []).append(text)
    return framed


def _literal(found: list[str]) -> str | None:
    value = plain_value(found[0]) if len(found) == 1 else None
    return value if isinstance(value, str) else None


def plain_value(text: str) -> Any:
    """The value of a Python literal; NOT_PLAIN for any other text, whatever it holds."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return NOT_PLAIN


class _NotPlain:
    """Equal to nothing that a call may return."""

    def __repr__(self) -> str:
        return "NOT_PLAIN"


NOT_PLAIN = _NotPlain()
