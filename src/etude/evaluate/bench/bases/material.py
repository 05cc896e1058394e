"""The material that all checkpoints are measured on: the same files, the same questions, none of which is too long for any of them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from etude.core.trace.reader import read_session
from etude.evaluate.bench.bases.compared_checkpoint import ComparedCheckpoint, Incomparable
from etude.learn.corpus.codebase import codebase
from etude.learn.corpus.fresh_knowledge import KnowledgeQuestion, knowledge_questions
from etude.learn.corpus.state_tracking import StateQuestion, state_questions

MOST_CONTEXT = 2048  # tokens: attention's cost on a laptop grows from there on
ANSWER_ROOM, ANSWER_MORE = 1.25, 16  # an answer may be longer than the right one by a quarter and some tokens


@dataclass(frozen=True)
class Extent:
    """How much is asked."""

    most_bytes: int = 1_000_000
    changes: tuple[int, ...] = (1, 2, 4, 8)
    questions: int = 8  # state tracking: for each number of changes and folder
    knowledge: int = 64
    batches: tuple[int, ...] = (1, 8)
    rounds: int = 5
    seed: int = 0


QUICK = Extent(most_bytes=60_000, changes=(1, 2), questions=3, knowledge=16, rounds=3)


@dataclass(frozen=True)
class Material:
    """`left_out` says for each measure that lacks questions why."""

    context: int  # tokens: of a perplexity window, and of a question with its answer
    files: list[tuple[str, str]]  # (path, text) in alphabetical order
    all_files: int  # before the limit on bytes
    state: list[StateQuestion]
    knowledge: list[KnowledgeQuestion]
    left_out: dict[str, str] = field(default_factory=dict)


def material(
    found: Sequence[ComparedCheckpoint],
    folders: Sequence[Path],
    sessions: Sequence[Path],
    extent: Extent,
    context: int | None,
) -> Material:
    """Raises NoCode for folders without code, FileNotFoundError, PermissionError, SessionError, Incomparable for a context that not all can read."""
    shortest = min(checkpoint.config.context_length for checkpoint in found)
    if context is not None and context > shortest:
        raise Incomparable(
            f"a context of {context:,} tokens, but one of the checkpoints ends at {shortest:,}: take a shorter one"
        )
    context = context or min(shortest, MOST_CONTEXT)
    left_out: dict[str, str] = {}
    files = _files(folders)
    state = _state(found, folders, extent, context, left_out)
    knowledge = _knowledge(found, sessions, extent, context, left_out)
    return Material(context, _sample(files, extent), len(files), state, knowledge, left_out)


def room(checkpoint: ComparedCheckpoint, answer: str) -> int:
    """Tokens that an answer may take."""
    return int(ANSWER_ROOM * len(checkpoint.encode(answer))) + ANSWER_MORE


def _files(folders: Sequence[Path]) -> list[tuple[str, str]]:
    """Of several folders each path begins with its folder's name."""
    for folder in folders:
        if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
            raise PermissionError(f"{folder} can't be read by this user; change its permissions or name a copy")
    several = len(folders) > 1
    return sorted(
        (f"{folder.name}/{path}" if several else path, text) for folder in folders for path, text in codebase(folder)
    )


def _sample(files: list[tuple[str, str]], extent: Extent) -> list[tuple[str, str]]:
    """Whole files, drawn by the seed, of together at most `most_bytes` (one at least); in their order."""
    chosen, total = [], 0
    for n in random.Random(extent.seed).sample(range(len(files)), len(files)):
        size = len(files[n][1].encode())
        if not chosen or total + size <= extent.most_bytes:
            chosen.append(n)
            total += size
    return [files[n] for n in sorted(chosen)]


def _state(
    found: Sequence[ComparedCheckpoint], folders: Sequence[Path], extent: Extent, context: int, left_out: dict[str, str]
) -> list[StateQuestion]:
    def fits(question: StateQuestion) -> bool:
        return all(_length(c, question.prompt()) + room(c, question.answer) <= context for c in found)

    questions: list[StateQuestion] = []
    without: list[str] = []
    for folder in folders:
        of = state_questions(folder, extent.changes, extent.questions, extent.seed, fits)
        without += [str(folder)] if of is None else []
        questions += of or []
    if without:
        left_out["history"] = f"no history in {', '.join(without)}: not a git repository, or no file changed"
    if not questions:
        left_out["state"] = (
            "no history" if len(without) == len(folders) else f"no file with its changes fits into {context:,} tokens"
        )
    return questions


def _knowledge(
    found: Sequence[ComparedCheckpoint],
    sessions: Sequence[Path],
    extent: Extent,
    context: int,
    left_out: dict[str, str],
) -> list[KnowledgeQuestion]:
    files = sorted(file for place in sessions for file in _session_files(place))
    questions = knowledge_questions((read_session(file) for file in files), extent.knowledge, extent.seed)
    fitting = [q for q in questions if all(_length(c, q.prompt()) + room(c, q.answer) <= context for c in found)]
    if not sessions:
        left_out["knowledge"] = "no sessions (--sessions)"
    elif not fitting:
        left_out["knowledge"] = f"nothing looked up and then used in {len(files):,} sessions"
    return fitting


def _session_files(place: Path) -> Iterable[Path]:
    """The session files below a folder. Raises FileNotFoundError."""
    if not place.exists():
        raise FileNotFoundError(f"{place}: there is no such folder of sessions")
    begins = b'{"type":"session"'
    for path in [place] if place.is_file() else place.rglob("*.jsonl"):
        with open(path, "rb") as file:
            if file.read(len(begins)) == begins:
                yield path


def _length(checkpoint: ComparedCheckpoint, text: str) -> int:
    return len(checkpoint.encode(text))
