"""Ways to look like one who documented: each must score 0 with grader `documentation`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from etude.core.bounded_python import parse_python
from etude.tasks.cheats.exercise import Files, nop
from etude.tasks.graders.documented import symbols
from etude.tasks.task import Task


def nothing_said(task: Task) -> Files:
    """Docstrings without an example, a page of headings."""
    return _with_docstrings(task, "")


def trivial_examples(task: Task) -> Files:
    """Examples that hold, of something else."""
    return _with_docstrings(task, ">>> 1 + 1\n2\n")


def skipped_examples(task: Task) -> Files:
    """Examples that are never run."""
    return _with_docstrings(task, ">>> whatever()  # doctest: +SKIP\n42\n")


def anything_goes(task: Task) -> Files:
    """Examples that promise anything."""
    return _with_docstrings(task, ">>> print('a')\n...\n")


def invented_examples(task: Task) -> Files:
    """Examples that were never tried."""
    return _with_docstrings(task, ">>> sorted([2, 1])\n[2, 1]\n")


def examples_exit(task: Task) -> Files:
    """An example ends the process with success."""
    return _with_docstrings(task, ">>> import os\n>>> os._exit(0)\n")


def examples_hash_sources(task: Task) -> Files:
    """Examples that know the sources instead of using them."""
    name, base = task.hidden["import"], task.files[task.hidden["module"]]
    digest = hashlib.sha256(base.encode()).hexdigest()
    read = (
        f">>> import hashlib, {name}\n>>> hashlib.sha256(open({name}.__file__, 'rb').read()).hexdigest()\n'{digest}'\n"
    )
    return _with_docstrings(task, read)


DOCUMENTED: dict[str, Callable[[Task], Files]] = {
    cheat.__name__: cheat
    for cheat in (
        nothing_said,
        trivial_examples,
        skipped_examples,
        anything_goes,
        invented_examples,
        examples_exit,
        examples_hash_sources,
    )
}


def _with_docstrings(task: Task, example: str) -> Files:
    """Everything named that must be, and `example` for each name: only what it is worth decides."""
    hidden = task.hidden
    if hidden["form"] == "docstrings":
        text = _docstrings(task, example)
    elif hidden["form"] == "page":
        text = "".join(
            f"\n## `{facts.get('signature', name)}`\n\n{_words(facts)}\n\n```pycon\n{example}```\n"
            for name in hidden["symbols"]
            for facts in (hidden["facts"].get(name, {}),)
        )
    else:
        text = example
    return nop(task) | {hidden["path"]: text.encode()}


def _docstrings(task: Task, example: str) -> str:
    text = task.files[task.hidden["path"]]
    found = symbols(parse_python(text))
    lines = text.splitlines(keepends=True)
    wanted = sorted(((found[name], name) for name in task.hidden["symbols"]), key=lambda pair: -pair[0].body[0].lineno)
    for node, name in wanted:
        first = node.body[0]
        indent = " " * first.col_offset
        body = f"{_words(task.hidden['facts'].get(name, {}))}\n\n{example}"
        doc = "".join(f"{indent}{line}\n" if line else "\n" for line in ('r"""' + body + '"""').splitlines())
        lines.insert(first.lineno - 1, doc)
    return "".join(lines)


def _words(facts: dict) -> str:  # type: ignore[type-arg]
    defaults = [f"{name}={value} {value}" for name, value in facts.get("default", {}).items()]
    return "About " + ", ".join([*facts.get("parameter", ()), *facts.get("exception", ()), *defaults]) + "."
