"""What a changelog's newer edition says more: the points that somebody could have asked for, without numbers of issues and names of people.

Points about documents, pipelines, packaging and versions of the language are no request for code, and are left out.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generators.request_text import without_references

CHANGELOG = re.compile(
    r"(^|/)(CHANGES|CHANGELOG|HISTORY|NEWS|RELEASES?|release[-_]notes)(\.(md|rst|txt))?$", re.IGNORECASE
)
MOST = 12  # points that one request can hold
_POINT = re.compile(r"^\s*[-*+]\s+")
_KIND = re.compile(r"^(?P<kind>[a-z]+)(\([^)]*\))?!?:\s+")  # conventional commits: fix(typing): …
_ASIDE_KINDS = frozenset(("docs", "doc", "ci", "chore", "build", "test", "tests", "style", "support", "release"))
_TAG = re.compile(r"^(\*\*)?\[(?P<kind>[A-Za-z][\w ,`-]*)\](\*\*)?:?\s+(?!\()")  # [Fix] …
_ASIDE_TAGS = re.compile(
    r"(?i)\b(deps|tests?|meta|readme|docs?|actions|eslint|lint|refactor|types?|build|ci|robustness)\b"
)
_ASIDE = re.compile(
    r"(?i)\b(document(ation|ed)?|docs|typos?|readme|changelog|(update|add|use|fix|move\w*) (the )?(ci|github actions)|ci environment|tox|"
    r"drop(s|ped)? (the )?support|is no longer supported|depend(s|ency) on python|python_requires|licen[cs]e|flake8|pep ?8|badges?|pypi|"
    r"(various|small|minor|general|internal|some|and) (\w+ )?(bug ?fix(es)?|fixes|improvements|refactoring|clean-?ups?)|^bug ?fix(es)?|reformat\w*|"
    r"git ?hub actions|travis|code refactoring|(tests?|testing|run) (on|under|with|against) python|test (suite|cases?)|(unit|doc) ?tests?|"
    r"testing dependencies|build backend|packag(ing|e metadata)|pyproject\.toml|setup\.(py|cfg)|wheels?|pre-commit|"
    r"future version|lint(er|ing)?|type (hints?|checking|annotations?)|typing|mypy|examples?)\b"
)
_NUMBER = r"(issues?|pr|pull request|gh|bug|fix(es|ed)?|close[sd]?|see|bpo)?[\s:-]*"
_NOISE = (
    (re.compile(r":(issue|pr|pull|gh|user|commit|bpo):`[^`]*`"), ""),
    (re.compile(r"`[^`<]*<https?://[^>]*>`_+"), ""),
    (re.compile(r"\[([^\]]*)\]\(https?://[^)]*\)"), r"\1"),
    (re.compile(r"https?://\S+"), ""),
    (re.compile(r":[a-z:]+:`~?\.?([^`<]+?)(\s*<[^>]*>)?`"), r"`\1`"),  # roles of Sphinx
    (re.compile(r"``+"), "`"),
    (re.compile(r"\(@[^()]*\)"), ""),
    (re.compile(rf"(?i){_NUMBER}#\d+"), ""),
    (re.compile(r"(?i)\b(issue|pr)\d+\b"), ""),
    (re.compile(r"(?i),?\s*\b(pr|patch(es)?|suggest(ed|ion)|report(ed)?|thanks?|contributed|submitted)( (submitted|to|by|for))* [A-Z][^.,()]*"), ""),
    (re.compile(r",?\s*\bby @?[\w-]+(?=[).]|$)"), ""),
    (re.compile(r"^\s*v?\d+\.\d+(\.\d+)*\s*:"), ""),
    (re.compile(r"\(\s*(and|,|;|\(|\)|\s|by|issues?|prs?|see|fix(es)?)*\)"), ""),
    (re.compile(r"\s+([.,;:])"), r"\1"),
)  # fmt: skip


def requested_changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The newer edition's own points that ask for code. Raises CandidateRejected."""
    path = min((path for path in after if CHANGELOG.search(path)), key=lambda path: (path.count("/"), path), default="")
    if not path:
        raise CandidateRejected("it has no changelog, so there is no request to make of it")
    points = new_points(before.get(path, ""), after[path])
    kept = [text for point in points if (text := request_text(point))]
    if not kept:
        raise CandidateRejected(f"{path} has {len(points)} new points in the later release, and none asks for code")
    if len(kept) > MOST:
        raise CandidateRejected(f"{path} has {len(kept)} new points, more than {MOST}: that was not one goal")
    return kept


def new_points(before: str, after: str) -> list[str]:
    """List items that the later text has more, each whole on one line."""
    rows = [row[2:] for row in difflib.ndiff(before.splitlines(), after.splitlines()) if row.startswith("+ ")]
    points: list[str] = []
    for row in rows:
        if _POINT.match(row):
            points.append(_POINT.sub("", row).strip())
        elif points and row.startswith((" ", "\t")) and row.strip():
            points[-1] += f" {row.strip()}"
    return points


def request_text(point: str) -> str:
    """The point as a person would say it; empty where it asks for no code."""
    text = point
    for pattern, instead in _NOISE:
        text = pattern.sub(instead, text)
    text = " ".join(without_references(text).split()).strip(" ,;:-")
    if tag := _TAG.match(text):
        if _ASIDE_TAGS.search(tag["kind"]):
            return ""
        text = text[tag.end() :]
    if kind := _KIND.match(text):
        if kind["kind"] in _ASIDE_KINDS:
            return ""
        text = text[kind.end() :]
    text = re.sub(r"[.,;]*\.$", ".", text)
    if _ASIDE.search(text.partition(". ")[0]) or len(text.split()) < 3:
        return ""
    return text
