"""What a prompt may not do: give the solution away, name a hidden test, name a path of the machine it was made on; and what it must do: the
full one holds every name that the hidden tests need and the workspace lacks, the ambiguous one says what changes and where.

By words, not by a parser, so that it holds in every language: a word that occurs in the reference and in a hidden test and nowhere in
the workspace is one that an agent can't guess.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import lru_cache

from etude.core.bounded_python import parse_python
from etude.sandbox.spec import WORKDIR
from etude.tasks.generate.prompts.content import lacking_content
from etude.tasks.generate.prompts.facts import KEY, Facts, facts_of
from etude.tasks.generate.prompts.writing import LONGEST, STYLES, Style
from etude.tasks.protected import PROSE, is_test
from etude.tasks.task import Task

TELLING = 16  # characters of a stripped line of code from which it says more than its language does
WORD = re.compile(r"[A-Za-z_$][\w$]{2,}")
_TEST_NAME = re.compile(r"\btest_\w+|\bTest[A-Z]\w+")
_HOST_PATH = re.compile(r"(?<![\w./`])/(?:home|root|Users|tmp|var|work|mnt|opt|srv)/[\w.@/-]+")


def objections(task: Task, prompts: Mapping[str, str], facts: Facts | None = None) -> list[str]:
    """What is wrong with the prompts, in words; empty if nothing is. `facts`: by default those of the task's metadata; without any, an
    ambiguous prompt stays as its author typed it, without objection. Raises TaskError for metadata that are no facts."""
    found = [f"there is no {style} prompt" for style in STYLES if not prompts.get(style, "").strip()]
    needed = needed_names(task)
    for style in STYLES:
        text = prompts.get(style, "")
        found += [f"{style}: {what}" for what in [*leaks(task, text, needed), *shape(style, text)]]
    facts = facts or facts_of(task.metadata)
    if facts is not None and (text := prompts.get("ambiguous", "")).strip():
        found += [f"ambiguous: {what}" for what in lacking_content(facts, text, sorted(needed))]
    lacking = sorted(needed - words(prompts.get("full", "")))
    if lacking:
        found.append(
            f"full: the hidden tests need {', '.join(lacking[:5])}, which is neither said nor in the workspace"
        )
    return found


def leaks(task: Task, text: str, needed: frozenset[str]) -> list[str]:
    """What the text gives away. A signature of a needed name is no leak: it is the interface, and so are the names that facts list as such."""
    known = {line.strip() for source in task.files.values() for line in source.splitlines()}
    interface = [" ".join(str(one).split()) for one in task.metadata.get(KEY, {}).get("interface", ())]
    flat = " ".join(text.split())
    found = []
    for path, source in task.solution.items():
        for line in map(str.strip, telling_lines(path, source, documents=task.category == "documentation")):
            if len(line) < TELLING or line in known or needed & words(line) or not _code(line):
                continue
            line = " ".join(line.split())
            if line in flat and not any(line.rstrip(",") in one for one in interface):
                found.append(f"it holds a line of the reference ({path}): {line[:60]}")
    for name in sorted(set(_TEST_NAME.findall(text)) & hidden_tests(task)):
        found.append(f"it names the hidden test {name}")
    return [*dict.fromkeys(found)]


def telling_lines(path: str, source: str, *, documents: bool) -> list[str]:
    """The lines that are the work: where documents are not what is asked for, neither theirs nor a docstring's, which say what code does
    and not how."""
    lines = source.splitlines()
    if documents:
        return lines
    if PROSE.search(path):
        return []
    return [line for number, line in enumerate(lines, 1) if number not in docstring_lines(path, source)]


@lru_cache(maxsize=256)
def docstring_lines(path: str, source: str) -> frozenset[int]:
    """Lines inside docstrings of a Python module; empty for what is none."""
    try:
        tree = parse_python(source) if path.endswith((".py", ".pyi")) else ast.Module([], [])
    except (SyntaxError, ValueError):
        return frozenset()
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                found |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return frozenset(found)


def shape(style: Style, text: str) -> list[str]:
    """Length, and what no person would type."""
    found = []
    if len(text) > LONGEST[style]:
        found.append(f"it has {len(text)} characters; {LONGEST[style]} are the most")
    found += [f"it names {path}, a path of the machine it was made on" for path in host_paths(text)]
    return found


def host_paths(text: str) -> list[str]:
    return [path for path in _HOST_PATH.findall(text) if not path.startswith(f"{WORKDIR}/")]


def needed_names(task: Task) -> frozenset[str]:
    """Words that the hidden tests and the reference share and nothing in the workspace has."""
    tests = {
        path: text for path, text in task.hidden.get("files", {}).items() if isinstance(text, str) and is_test(path)
    }
    if not tests:
        return frozenset()
    before = set().union(*map(words, task.files.values())) if task.files else set()
    tested = set().union(*map(words, tests.values())) - before
    defined = set().union(*map(words, task.solution.values())) if task.solution else set()
    return frozenset(tested & defined)


def hidden_tests(task: Task) -> set[str]:
    """Names of tests that an agent doesn't see."""
    hidden = [*task.hidden.get("fail_to_pass", []), *task.hidden.get("pass_to_pass", [])]
    names = {word for name in hidden for word in _TEST_NAME.findall(str(name))}
    seen = set().union(*(set(_TEST_NAME.findall(text)) for text in task.files.values())) if task.files else set()
    return names - seen


def words(text: str) -> frozenset[str]:
    return frozenset(WORD.findall(text))


def _code(line: str) -> bool:
    """Whether a line is code rather than a comment's or a docstring's prose, which facts may quote."""
    return bool(re.search(r"[(){}\[\]=;]|=>|->", line)) and not line.startswith(("#", "//", "*", "/*", '"""', "'''"))
