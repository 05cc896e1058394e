"""Classifies a session by readable rules: the words of its request and the files that it wrote. Each match names its
rule.

1. A request for a review is a review, whatever files were written.
2. If all written files are of one kind (pipelines, documents, tests), the kind decides: "do this" that wrote only README.md was documentation. A
test repaired on request of a fix stays debugging.
3. Otherwise the words of the request decide (`phrases.py`).
4. Otherwise a session that only created files built a feature.
5. Otherwise the session is undecided: it is counted apart and never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from etude.core.trace.entry import Entry
from etude.tasks.mix.phrases import CategoryMatch, match_phrase
from etude.tasks.protected import is_test

CATEGORIES = ("debugging", "features", "refactors", "documentation", "tests", "review", "devops", "migrations")

_OPS = re.compile(
    r"(^|/)(\.github/|\.gitlab-ci|\.circleci/|\.travis|Jenkinsfile|Dockerfile|Containerfile|(docker-)?compose\.ya?ml$|Makefile$|azure-pipelines"
    r"|terraform/|helm/|charts/|k8s/|ansible/|deploy/|nginx\.conf)|\.(tf|service|dockerfile)$"
)
_DOCS = re.compile(
    r"\.(md|rst|adoc|txt)$|(^|/)(docs?|documentation|man)/|(^|/)(README|CHANGELOG|CONTRIBUTING|AUTHORS)[^/]*$"
)
# Argument names for a file in the writing tools of other agents, whose logs lack the texts before and after.
_WRITING = re.compile(r"(?i)write|edit|create|replace|patch")
_PATH_ARGUMENTS = ("path", "file_path", "filename", "notebook_path")


@dataclass(frozen=True)
class WrittenFiles:
    """Files that a session wrote and that exist after it; `created` are the new ones among them."""

    files: tuple[str, ...] = ()
    created: tuple[str, ...] = ()


def written_files(entries: Sequence[Entry]) -> WrittenFiles:
    """The files of the session's edits; where a log has none, of its calls of writing tools.

    Undone edits do not count.
    """
    undone = {number for entry in entries if entry.type == "undo" for number in entry.data["edits"]}
    edits = [entry.data for entry in entries if entry.type == "edit" and entry.id not in undone]
    if edits:
        created = [data["path"] for data in edits if data["kind"] == "create"]
        return WrittenFiles(tuple(dict.fromkeys(data["path"] for data in edits)), tuple(dict.fromkeys(created)))
    calls = [call for entry in entries if entry.type == "completion" for call in _calls(entry.data)]
    return WrittenFiles(tuple(dict.fromkeys(path for call in calls for path in _paths_in_call(call))))


def _calls(data: dict[str, Any]) -> list[dict[str, Any]]:
    return list((data.get("message") or {}).get("tool_calls") or ())


def _paths_in_call(call: dict[str, Any]) -> list[str]:
    if not _WRITING.search(str(call.get("name", ""))):
        return []
    arguments = call.get("arguments") or {}
    return [str(arguments[key]) for key in _PATH_ARGUMENTS if isinstance(arguments.get(key), str)]


def _is_ops(path: str) -> bool:
    return bool(_OPS.search(path))


def _is_document(path: str) -> bool:
    return bool(_DOCS.search(path)) and PurePosixPath(path).name not in ("requirements.txt", "CMakeLists.txt")


KINDS: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    ("devops", "wrote pipelines alone", _is_ops),
    ("tests", "wrote tests alone", is_test),
    ("documentation", "wrote documents alone", _is_document),
)


def classify(request: str, written: WrittenFiles) -> CategoryMatch | None:
    """The category, the rule and the words or files that matched; None where no rule applies."""
    words = match_phrase(request)
    if words is not None and words.category == "review":
        return words
    for category, rule, is_kind in KINDS:
        if (
            written.files
            and all(map(is_kind, written.files))
            and not (words and words.category == "debugging" and is_kind is is_test)
        ):
            return CategoryMatch(category, rule, ", ".join(written.files[:3]))
    if words is not None:
        return words
    if written.created and set(written.created) == set(written.files):
        return CategoryMatch("features", "made new files alone", ", ".join(written.created[:3]))
    return None
