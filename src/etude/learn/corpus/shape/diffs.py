"""Releases as changes: two versions of a project become documents of what changed, with what the changelog says about it.

Commits are what others train on (Seed-Coder, The Stack); a registry has only releases, and a release's changelog section is its message. Two forms:

    unified   title, changelog section, then a unified diff a file: read like a commit
    blocks    the files as they were, the section as a request, then search/replace blocks: written like an agent's edit

Left out as noise: files of others (vendored, locks), files in which only versions, dates and years changed, files rewritten from
end to end, large new files, and the changelog itself where its section is given. A moved file is shown as moved, a removed one by its path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from etude.core.licence.licence import EVIDENCE, Licence
from etude.learn.corpus.record import TextRecord
from etude.learn.corpus.shape.changelog import NAMES, changelog_section
from etude.learn.corpus.shape.line_diff import LineChange, changes, split_lines
from etude.learn.corpus.shape.unified import group_changes, unified_diff

# Changes written as search/replace blocks, as coding agents edit: each names some lines that occur once in the file,
# and their replacement.
#
#     <<<<<<< SEARCH
#     old lines
#     =======
#     new lines
#     >>>>>>> REPLACE
#
# Blocks are applied one after the other. A block takes as many unchanged lines around its change as it needs to be
# unmistakable.


SEARCH, DIVIDER, REPLACE = "<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n"
CONTEXT_LINES = (1, 3, 8, 20)  # tried in turn


class TextBlock(NamedTuple):
    search: str
    replace: str

    def __str__(self) -> str:
        return f"{SEARCH}{self.search}{DIVIDER}{self.replace}{REPLACE}"


def search_replace_blocks(old: str, new: str) -> list[TextBlock] | None:
    """Blocks that make `new` of `old`, both ended by a line end first if they aren't; [] if nothing changed. None where it can't be said:
    lines like the marks themselves, or no context up to 20 lines that is unmistakable."""
    old, new = ended(old), ended(new)
    before, after = split_lines(old), split_lines(new)
    found = changes(before, after)
    if not found:
        return []
    marks = {SEARCH, DIVIDER, REPLACE}
    if not old or not marks.isdisjoint(before) or not marks.isdisjoint(after):
        return None
    for context in CONTEXT_LINES:
        blocks = [_block(group, before, after, context) for group in group_changes(found, context)]
        if apply_blocks(old, blocks) == new:
            return blocks
    return None


def apply_blocks(text: str, blocks: Sequence[TextBlock]) -> str | None:
    """The text with the blocks applied in turn; None if what one searches is not there exactly once."""
    for block in blocks:
        at = _only_place(text, block.search)
        if at is None:
            return None
        text = text[:at] + block.replace + text[at + len(block.search) :]
    return text


def ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _only_place(text: str, search: str) -> int | None:
    """Where these whole lines begin, if they occur there once."""
    if not search:
        return None
    places = []
    at = text.find(search)
    while at >= 0 and len(places) < 2:
        if not at or text[at - 1] == "\n":
            places.append(at)
        at = text.find(search, at + 1)
    return places[0] if len(places) == 1 else None


def _block(group: Sequence[LineChange], old: Sequence[str], new: Sequence[str], context: int) -> TextBlock:
    start = max(0, group[0].start - context)
    end = min(len(old), group[-1].end + context)
    new_start = group[0].new_start - (group[0].start - start)
    new_end = group[-1].new_end + (end - group[-1].end)
    return TextBlock("".join(old[start:end]), "".join(new[new_start:new_end]))


# Texts with their paths, one after the other, cut to a length: the byte format of a project string.
#
# Each section begins with a line `==> path <==`, as `head` and `tail` print several files, which is also how an agent
# sees them; a section that was cut goes on under `==> path (continued) <==`.


@dataclass(frozen=True)
class Section:
    path: str
    text: str
    continued: bool = False

    def __str__(self) -> str:
        end = "" if self.text.endswith("\n") else "\n"
        return f"{self.heading}{self.text}{end}\n"

    @property
    def heading(self) -> str:
        return f"==> {self.path}{' (continued)' if self.continued else ''} <==\n"

    @property
    def chars(self) -> int:
        """Of `str(self)`, without making it."""
        return len(self.heading) + len(self.text) + 2 - self.text.endswith("\n")


def cut(sections: Sequence[Section], longest_chars: int, *, from_the_end: bool = False) -> list[list[Section]]:
    """Groups of sections in their order, each as full as goes within `longest_chars`; only a section that is longer than that is
    cut itself, between lines where there are any. `from_the_end` fills the last group first."""
    parts = [part for section in sections for part in _parts(section, longest_chars)]
    groups: list[list[Section]] = []
    used = longest_chars
    for part in reversed(parts) if from_the_end else parts:
        if used + part.chars > longest_chars or not groups:
            groups.append([])
            used = 0
        groups[-1].append(part)
        used += part.chars
    return [group[::-1] for group in reversed(groups)] if from_the_end else groups


def _parts(section: Section, longest_chars: int) -> Iterable[Section]:
    room = longest_chars - len(Section(section.path, "", continued=True).heading) - 2
    if room < 1:
        raise ValueError(
            f"no text of {section.path} fits in {longest_chars} characters together with its heading; take a longer bucket"
        )
    rest = section
    while rest.chars > longest_chars:
        end = rest.text.rfind("\n", 0, room) + 1 or room
        yield Section(rest.path, rest.text[:end], rest.continued)
        rest = Section(rest.path, rest.text[end:], continued=True)
    yield rest


Form = Literal["unified", "blocks"]

# Some 32,000 tokens: what a short-context phase sees in one window.
LONGEST_CHARS = 100_000
# The headings of an exercise's request and changes, with room to spare.
FRAME_CHARS = 100
# A section for a whole year of work says little about one file.
LONGEST_SECTION_CHARS = 6_000
# A longer new file is a text like any other, and the library has it.
LONGEST_NEW_FILE_LINES = 400
# A file of which less than a fifth stayed was replaced, not changed; a short one may well be.
LEAST_KEPT = 0.2
SHORT_FILE_LINES = 30

NOT_THEIRS = re.compile(
    r"(?i)(?:^|/)(?:_?vendor(?:ed)?|third[-_]?party|external|node_modules|bower_components|dist|\.git)/"
    r"|\.min\.(?:js|css)$|(?:^|/)(?:package-lock\.json|yarn\.lock|pnpm-lock\.yaml|poetry\.lock|uv\.lock|cargo\.lock|go\.sum|pkg-info|[^/]*\.egg-info/.*)$"
)
# Versions, dates, version tuples and years; a lone number may be the very fix.
VERSION = re.compile(
    r"\d+(?:[.\-/:]\d+)+(?:[.-]?(?:a|b|rc|dev|post|alpha|beta)\.?\d*)?|\d+(?:, ?\d+){2,}|\b(?:19|20)\d\d\b"
)


class ProjectFileChange(NamedTuple):
    path: str
    old_path: str  # another one if the file moved
    old: str | None  # None: the file is new
    new: str


def release_diffs(
    before: Sequence[TextRecord],
    after: Sequence[TextRecord],
    *,
    form: Form = "unified",
    longest_chars: int = LONGEST_CHARS,
) -> list[TextRecord]:
    """`diff` records of one project's change from one version to the next, each of at most `longest_chars`; a file whose change alone is longer is
    left out. Empty if nothing of note changed. Raises ValueError for records of several projects or versions."""
    if not before or not after:
        return []
    old_version, new_version = _version(before, before[0].project), _version(after, before[0].project)
    old = {record.path: record for record in before if record.kind == "file"}
    new = {record.path: record for record in after if record.kind == "file"}
    section = changelog_section({path: record.text for path, record in new.items()}, old_version, new_version)
    found, removed = file_changes(_texts(old), _texts(new), with_section=bool(section))
    head = f"{before[0].project} {old_version} to {new_version}\n\n" + (_shortened(section) + "\n\n" if section else "")
    head += "".join(f"Removed: {path}\n" for path in removed[:20]) + ("\n" if removed else "")
    with_body = [(change, body) for change in found if (body := _body(change, form))]
    documents = []
    for number, group in enumerate(
        _groups(with_body, longest_chars - len(head) - FRAME_CHARS, with_files=form == "blocks")
    ):
        text = head + "".join(body for _, body in group) if form == "unified" else _exercise(head, group)
        licence = _licence([new[change.path].licence for change, _ in group])
        path = f"{old_version}..{new_version}/{form}-{number}"
        documents.append(replace(after[0], text=text, kind="diff", path=path, language="diff", licence=licence))
    return documents


def file_changes(
    old: Mapping[str, str], new: Mapping[str, str], *, with_section: bool = False
) -> tuple[list[ProjectFileChange], list[str]]:
    """What changed between two trees (path -> text) by path, and the paths of removed files, both without noise. `with_section`: the changelog's
    own change is left out, because its section is given."""
    gone = {path: text for path, text in old.items() if path not in new and not NOT_THEIRS.search(path)}
    moved = {text: path for path, text in sorted(gone.items(), reverse=True)}
    found = []
    for path in sorted(new):
        text = new[path]
        if old.get(path) == text or NOT_THEIRS.search(path) or (with_section and NAMES.match(path)):
            continue
        if path in old:
            change = ProjectFileChange(path, path, old[path], text)
        elif text in moved:
            change = ProjectFileChange(path, moved[text], text, text)
            gone.pop(moved.pop(text))
        else:
            change = ProjectFileChange(path, path, None, text)
        if not is_noise(change):
            found.append(change)
    return found, sorted(gone)


def is_noise(change: ProjectFileChange) -> bool:
    """A bumped version, a rewritten file, or a large new file."""
    if change.old is None:
        return change.new.count("\n") > LONGEST_NEW_FILE_LINES
    old, new = split_lines(ended(change.old)), split_lines(ended(change.new))
    found = changes(old, new)
    if not found:
        return change.old_path == change.path  # but a last line end
    if all(_without_versions(old[c.start : c.end]) == _without_versions(new[c.new_start : c.new_end]) for c in found):
        return True
    gone = sum(change.end - change.start for change in found)
    return len(old) > SHORT_FILE_LINES and len(old) - gone < LEAST_KEPT * len(old)


def _without_versions(lines: Sequence[str]) -> list[str]:
    return [VERSION.sub("0", line) for line in lines]


def _body(change: ProjectFileChange, form: Form) -> str:
    """The change of one file; "" where the form can't say it."""
    if form == "unified":
        return unified_diff(change.path, change.old, change.new, old_path=change.old_path)
    if change.old is None:
        blocks: list[TextBlock] | None = [TextBlock("", ended(change.new))]
    else:
        blocks = search_replace_blocks(change.old, change.new) if change.old_path == change.path else None
    return f"{change.path}\n{''.join(map(str, blocks))}\n" if blocks else ""


def _groups(
    changes: Sequence[tuple[ProjectFileChange, str]], room: int, with_files: bool
) -> Iterator[list[tuple[ProjectFileChange, str]]]:
    """As many files to a document as it holds."""
    group: list[tuple[ProjectFileChange, str]] = []
    used = 0
    for change, body in changes:
        size = len(body)
        if with_files and change.old is not None:
            size += Section(change.path, ended(change.old)).chars
        if size > room:
            continue
        if group and used + size > room:
            yield group
            group, used = [], 0
        group.append((change, body))
        used += size
    if group:
        yield group


def _exercise(head: str, group: Sequence[tuple[ProjectFileChange, str]]) -> str:
    files = "".join(str(Section(change.path, ended(change.old))) for change, _ in group if change.old is not None)
    return (
        f"{files}{Section('request', head.rstrip())}{Section('changes', ''.join(body for _, body in group).rstrip())}"
    )


def _texts(records: Mapping[str, TextRecord]) -> dict[str, str]:
    return {path: record.text for path, record in records.items()}


def _version(records: Sequence[TextRecord], project: str) -> str:
    names = {(record.project, record.version) for record in records}
    if len(names) > 1 or records[0].project != project:
        raise ValueError(
            f"records of {sorted(names)[:3]}: a release diff is between two versions of one project ({project})"
        )
    return records[0].version


def _shortened(section: str) -> str:
    if len(section) <= LONGEST_SECTION_CHARS:
        return section
    end = section.rfind("\n", 0, LONGEST_SECTION_CHARS)
    return section[: end if end > 0 else LONGEST_SECTION_CHARS] + "\n…"


def _licence(licences: Sequence[Licence]) -> Licence:
    """Of all together: unknown if one is, known no better than the worst."""
    worst = max(licences, key=lambda licence: EVIDENCE.index(licence.evidence)).evidence
    expressions = sorted({licence.expression for licence in licences})
    if "" in expressions:
        return Licence("", worst)
    several = len(expressions) > 1
    return Licence(" AND ".join(f"({e})" if several and " OR " in e else e for e in expressions), worst)
