"""What a judge is shown of one attempt: the request, the change, the final message and the log, as text. Never the verdict of the tests,
never who did it.

Material is enclosed in marks that are drawn from its own content, so that no text in it can close them.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from etude.core.trace.session import Session
from etude.core.trace.unicode import whole
from etude.evaluate.bench.grading.log import ActionEvent, events_of, final_message, render_log
from etude.evaluate.bench.grading.rubric import Part
from etude.tasks.content import file_text, is_text, same_content

# Takes out of a text who wrote it: names of policies, session ids, and paths that hold either. A judge that knows the
# author judges the author.
#
# Names of well-known model families go too: agents like to introduce themselves. A word that merely looks like one
# goes with them, which costs a judge nothing.


AUTHOR = "[author]"
PATH = "[path]"
_FAMILIES = (
    r"claude|chatgpt|gpt-?[0-9][\w.-]*|o[1345]-(?:mini|pro|preview)|codex|gemini|qwen[\w.-]*|deepseek[\w.-]*|kimi[\w.-]*|glm-[\w.-]+|"
    r"llama-?[0-9][\w.-]*|mistral[\w.-]*|devstral[\w.-]*|grok[\w.-]*|composer-?[0-9][\w.-]*|anthropic|openai"
)
_PATH = r"[\w.~@%+=:-]*(?:/[\w.~@%+=:#-]*)+"


def hide_names(text: str, names: Iterable[str] = ()) -> str:
    """The text without the `names` (whole words, in any case), without family names, and without paths that hold any of them."""
    own = [re.escape(name) for name in sorted(set(names), key=len, reverse=True) if len(name) > 1]
    word = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join([*own, _FAMILIES])})(?![A-Za-z0-9])", re.IGNORECASE)
    without = re.sub(_PATH, lambda path: PATH if word.search(path[0]) else path[0], text)
    return word.sub(AUTHOR, without)


# What a judge's window surely holds, about 12,000 tokens a part; the middle of what is longer is left out and said so.
MAX_CHARACTERS = 48_000


@dataclass(frozen=True)
class JudgedAttempt:
    """One attempt as a judge sees it. `events` are for judges that are rules."""

    request: str
    diff: str
    message: str
    events: tuple[ActionEvent, ...] = ()
    names: tuple[str, ...] = ()  # what the author is known by: left out of all that is shown

    @property
    def trace(self) -> str:
        return render_log(self.events)

    def part(self, part: Part) -> str:
        """One part, blind and bounded."""
        return shorten(hide_names(getattr(self, part), self.names))

    def marked_parts(self, parts: Sequence[Part], title: str = "") -> str:
        """The parts between their marks."""
        texts = {part: self.part(part) or "(empty)" for part in parts}
        mark = hashlib.sha256("\0".join(texts.values()).encode()).hexdigest()[:12]
        name = f"{title} " if title else ""
        return "\n\n".join(f"<<<{name}{part} {mark}\n{text}\n{mark}>>>" for part, text in texts.items())

    def with_diff(self, diff: str) -> JudgedAttempt:
        """With another diff, that of the files themselves."""
        return replace(self, diff=diff)

    def with_author_names(self, names: Iterable[str]) -> JudgedAttempt:
        """With more names that its author is known by."""
        return replace(self, names=tuple(sorted({*self.names, *names})))


def judged_attempt(
    session: Session, before: Mapping[str, str], after: Mapping[str, bytes] | None = None
) -> JudgedAttempt:
    """Of a recorded session. With the files that the attempt left the diff is theirs; else it is made of the edits' own lines."""
    events, header = tuple(events_of(session)), session.header
    if after is None:
        diff = "\n".join(line for event in events for one in event.edits for line in one.lines())
    else:
        diff = diff_of(before, after)
    names = tuple(name for name in (header.policy, header.session_id) if name)
    return JudgedAttempt(str(header.facts.get("instruction", "")), diff, final_message(session), events, names)


def diff_of(before: Mapping[str, str], after: Mapping[str, bytes]) -> str:
    """A unified diff of two trees; files that are no text are named only."""
    parts: list[str] = []
    for path in sorted({*before, *after}):
        old, data = before.get(path), after.get(path)
        if old is not None and same_content(old, data):
            continue
        name, new = whole(path), None if data is None else file_text(data)
        if not is_text(old or "") or not is_text(new or ""):
            parts.append(f"{name}: {f'{len(data)} bytes' if data is not None else 'removed, bytes'} that are no text")
            continue
        sides = ((old or "").splitlines(), (new or "").splitlines())
        ends = (f"a/{name}" if old is not None else "/dev/null", f"b/{name}" if new is not None else "/dev/null")
        parts += difflib.unified_diff(*sides, *ends, lineterm="")
    return "\n".join(parts)


def shorten(text: str, most: int = MAX_CHARACTERS) -> str:
    """The text, its middle left out where it is too long."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"
