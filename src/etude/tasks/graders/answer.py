"""Grader `answer`: one question, one right answer, in a file of one line.

For triage: the cause is planted, so what is right is known. What it catches: several answers in one file (only a single line of a few
words counts), and a guess: the generator asks only where the candidates are many. Case, quotes and the last full stop don't matter.
"""

from __future__ import annotations

import time

from etude.sandbox.protocol import Machines
from etude.tasks.restore import text_of
from etude.tasks.task import Task, Verdict

NAME = "answer"
MAX_CHARS = 200


class AnswerGrader:
    """`hidden`: path, answer."""

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        start = time.perf_counter()
        answer_text = text_of(files.get(task.hidden["path"]))
        reason = objection(answer_text, task.hidden["path"], task.hidden["answer"])
        return Verdict(float(not reason), {"answer": not reason}, reason, time.perf_counter() - start)


def objection(answer_text: str | None, path: str, answer: str) -> str:
    """Why it doesn't count; empty if it does. The right answer is not shown."""
    if answer_text is None:
        return f"{path} is missing, or no UTF-8 text"
    lines = [line for line in answer_text.splitlines() if line.strip()]
    if len(lines) != 1 or len(lines[0]) > MAX_CHARS:
        return f"{path} must hold one line of at most {MAX_CHARS} characters; it has {len(lines)} lines"
    return "" if plain(lines[0]) == plain(answer) else "another answer is right"


def plain(text: str) -> str:
    return text.strip().rstrip(".").strip("`'\" ").casefold()
