"""A session's category, by rules that can be read: its request's words and the files that it wrote. Each answer says which rule gave it.

1. a request for a review is one, whatever was written down;
2. where every file written is of one kind (pipelines, documents, tests), the kind decides: "do this" that wrote README.md alone was documentation;
   a test mended on request of a fix stays debugging;
3. else the words of the request decide (`words.py`);
4. else a session that only made new files built a feature;
5. else nothing is decided: it is counted apart, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from etude.core.trace.entry import Entry
from etude.tasks.mix.words import Told, told_by
from etude.tasks.protected import is_test

CATEGORIES = ("debugging", "features", "refactors", "documentation", "tests", "review", "devops", "migrations")

_OPS = re.compile(
    r"(^|/)(\.github/|\.gitlab-ci|\.circleci/|\.travis|Jenkinsfile|Dockerfile|Containerfile|(docker-)?compose\.ya?ml$|Makefile$|azure-pipelines"
    r"|terraform/|helm/|charts/|k8s/|ansible/|deploy/|nginx\.conf)|\.(tf|service|dockerfile)$"
)
_DOCS = re.compile(
    r"\.(md|rst|adoc|txt)$|(^|/)(docs?|documentation|man)/|(^|/)(README|CHANGELOG|CONTRIBUTING|AUTHORS)[^/]*$"
)
# Names of a file in calls of other agents' writing tools, whose logs do not tell both texts.
_WRITING = re.compile(r"(?i)write|edit|create|replace|patch")
_PLACES = ("path", "file_path", "filename", "notebook_path")


@dataclass(frozen=True)
class Done:
    """What a session wrote: files that are there after it, those among them that it made."""

    files: tuple[str, ...] = ()
    made: tuple[str, ...] = ()


def done_in(entries: Sequence[Entry]) -> Done:
    """By its edits; where a log tells none, by the calls of tools that write. What was undone does not count."""
    undone = {number for entry in entries if entry.type == "undo" for number in entry.data["edits"]}
    edits = [entry.data for entry in entries if entry.type == "edit" and entry.id not in undone]
    if edits:
        made = [data["path"] for data in edits if data["kind"] == "create"]
        return Done(tuple(dict.fromkeys(data["path"] for data in edits)), tuple(dict.fromkeys(made)))
    calls = [call for entry in entries if entry.type == "completion" for call in _calls(entry.data)]
    return Done(tuple(dict.fromkeys(path for call in calls for path in _written(call))))


def _calls(data: dict[str, Any]) -> list[dict[str, Any]]:
    return list((data.get("message") or {}).get("tool_calls") or ())


def _written(call: dict[str, Any]) -> list[str]:
    if not _WRITING.search(str(call.get("name", ""))):
        return []
    arguments = call.get("arguments") or {}
    return [str(arguments[key]) for key in _PLACES if isinstance(arguments.get(key), str)]


def _is_ops(path: str) -> bool:
    return bool(_OPS.search(path))


def _is_document(path: str) -> bool:
    return bool(_DOCS.search(path)) and PurePosixPath(path).name not in ("requirements.txt", "CMakeLists.txt")


KINDS: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    ("devops", "wrote pipelines alone", _is_ops),
    ("tests", "wrote tests alone", is_test),
    ("documentation", "wrote documents alone", _is_document),
)


def classify(request: str, done: Done) -> Told | None:
    """Its category, the rule, and what the rule saw; None where no rule applies."""
    words = told_by(request)
    if words is not None and words.category == "review":
        return words
    for category, rule, is_kind in KINDS:
        if (
            done.files
            and all(map(is_kind, done.files))
            and not (words and words.category == "debugging" and is_kind is is_test)
        ):
            return Told(category, rule, ", ".join(done.files[:3]))
    if words is not None:
        return words
    if done.made and set(done.made) == set(done.files):
        return Told("features", "made new files alone", ", ".join(done.made[:3]))
    return None
