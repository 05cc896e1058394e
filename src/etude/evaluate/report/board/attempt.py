"""One attempt in full, fetched when it is opened: its transcript as HTML, its tokens with all that is known of each."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from etude.core.trace.block import DamagedFile
from etude.core.trace.gap_file import read_gaps
from etude.core.trace.group_file import DamagedGroup, unpack_group
from etude.core.trace.migrations import SessionError
from etude.core.trace.reader import read_session
from etude.core.trace.segment import Rollout, Segment
from etude.core.trace.vocabulary import FILE_NAME, read_vocabulary
from etude.evaluate.report.board.index import AttemptIndex
from etude.evaluate.report.board.sources.rl import SOURCE as RL
from etude.evaluate.report.diff import patch_lines, render_diff
from etude.evaluate.report.session_page import transcript

# The vocabularies that lie next to a run's sessions, read once each: tokens are shown as text without a tokenizer.


class Vocabularies:
    """`near` looks next to a file and above it, then where RL and the demonstrations keep theirs."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._held: dict[Path, list[str]] = {}

    def near(self, file: str, source: str) -> list[str] | None:
        """None if the run has none for this attempt: its tokens are then shown by number."""
        for folder in self._places(file, source):
            if folder in self._held:
                return self._held[folder]
            if (folder / FILE_NAME).is_file():
                self._held[folder] = read_vocabulary(folder)
                return self._held[folder]
        return None

    def _places(self, file: str, source: str) -> Iterator[Path]:
        if file:
            path = (self._run / file).parent
            while path != self._run and self._run in path.parents:
                yield path
                path = path.parent
        yield self._run / source / "sessions"
        yield self._run / "sessions"


# What a file that can't be shown raises; the page says which and why.
UNREADABLE = (DamagedGroup, DamagedFile, SessionError, OSError, KeyError, ValueError, IndexError)
STEP = re.compile(rb'"step": (\d+),')  # near the beginning of its line


class AttemptReader:
    """Reads from the run's files at each call: a session that goes on is shown as far as it is."""

    def __init__(self, index: AttemptIndex) -> None:
        self._index = index
        self._run = index.run
        self._vocabularies = Vocabularies(index.run)
        self._lock = threading.Lock()
        self._places: dict[int, int] = {}  # step -> where its line begins in rl/steps.jsonl
        self._looked = 0  # up to here

    def read(self, number: int) -> dict[str, Any]:
        """The row, `transcript`, `segments`, `parts` (reward components), `counters` and `info`. Raises IndexError,
        SessionError, DamagedGroup, FileNotFoundError."""
        row = self._index.row(number)
        rollout = self._rollout(row)
        session = read_session(self._run / row["file"]) if row["file"] else None
        segments = rollout.segments if rollout is not None else session.segments() if session is not None else []
        with self._lock:
            vocabulary = self._vocabularies.near(row["file"], row["source"])
        gaps = self._gaps(row, segments)
        words = [_words(segment, vocabulary) for segment in segments]
        counters = rollout.counters if rollout is not None else _counters(session)
        return {
            **row,
            "transcript": transcript(session) if session is not None else _from_tokens(segments, words),
            "kept": session is not None,
            "change": self._change(row["file"]),
            "vocabulary": vocabulary is not None,
            "segments": [_segment_json(*one) for one in zip(segments, words, gaps, strict=True)],
            "parts": self._parts(row),
            "counters": {name: value for name, value in counters.items() if value},
            "info": rollout.info if rollout is not None else {},
        }

    def _rollout(self, row: dict[str, Any]) -> Rollout | None:
        if row["source"] != RL:
            return None
        return unpack_group((self._run / "rl" / "groups" / f"{row['group']:06d}.zst").read_bytes())[row["member"]]

    def _change(self, file: str) -> str:
        """The agent's change as HTML, where a patch lies next to its session; else empty."""
        path = (self._run / file).with_suffix(".patch") if file else None
        if path is None or not path.is_file():
            return ""
        return render_diff(patch_lines(path.read_text(encoding="utf-8", errors="replace")))

    def _gaps(self, row: dict[str, Any], segments: Sequence[Segment]) -> list[np.ndarray | None]:
        """What the trainer's logprobs were above the sampler's, a segment each; None where no step stored them."""
        path = self._run / "rl" / "gaps" / f"{row['group']:06d}.npy"
        if row["source"] != RL or not path.is_file():
            return [None] * len(segments)
        own = read_gaps(path, row["member"])
        bounds = np.cumsum([int(segment.sampled.sum()) for segment in segments])
        return list(np.split(own, bounds[:-1])) if len(segments) and bounds[-1] == len(own) else [None] * len(segments)

    def _parts(self, row: dict[str, Any]) -> dict[str, float]:
        """The reward's components, from the step that trained it."""
        path = self._run / "rl" / "steps.jsonl"
        if row["source"] != RL or row["step"] < 0 or not path.is_file():
            return {}
        with self._lock:
            place = self._place_of(path, row["step"])
        if place is None:
            return {}
        with path.open("rb") as file:
            file.seek(place)
            record = json.loads(file.readline())
        size = len(record["advantages"]) // max(1, len(record["groups"]))
        return record["components"][record["groups"].index(row["group"]) * size + row["member"]]

    def _place_of(self, path: Path, step: int) -> int | None:
        """The byte at which a step's line begins; of a step trained again the last. What came since the last look is read, no more."""
        if path.stat().st_size < self._looked:
            self._places, self._looked = {}, 0
        with path.open("rb") as file:
            file.seek(self._looked)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                if (found := STEP.search(line[:40])) is not None:
                    self._places[int(found[1])] = self._looked
                self._looked += len(line)
        return self._places.get(step)


def _counters(session: Any) -> dict[str, float]:
    entries = [] if session is None else session.of("counters")
    return entries[-1].data["counters"] if entries else {}


def _words(segment: Segment, vocabulary: list[str] | None) -> list[str]:
    ids = segment.ids.tolist()
    if vocabulary is None:
        return [f"⟨{token}⟩" for token in ids]
    return [vocabulary[token] if 0 <= token < len(vocabulary) else f"⟨{token}⟩" for token in ids]


def _segment_json(segment: Segment, words: list[str], gaps: np.ndarray | None) -> dict[str, Any]:
    """Columns of a segment's tokens; logprobs, versions and gaps are of the sampled ones alone, in order."""
    picked = segment.sampled
    return {
        "words": [word.encode("utf-8", "replace").decode() for word in words],
        "sampled": picked.astype(int).tolist(),
        "logprobs": [round(v, 4) if math.isfinite(v) else None for v in segment.logprobs[picked].tolist()],
        "versions": segment.versions[picked].tolist(),
        "gaps": None if gaps is None else [float(f"{value:.3g}") for value in gaps.tolist()],
    }


def _from_tokens(segments: Sequence[Segment], words: Sequence[list[str]]) -> list[str]:
    """Of an attempt whose session was not kept: its tokens as text, cut where the policy began and ended to speak."""
    blocks, turn = [], 0
    for number, (segment, texts) in enumerate(zip(segments, words, strict=True)):
        if number:
            blocks.append('<article class="summary"><header><b>goes on after a self-summary</b></header></article>')
        cuts = [0, *(np.flatnonzero(np.diff(segment.sampled.astype(np.int8))) + 1).tolist(), len(segment)]
        for start, stop in zip(cuts, cuts[1:], strict=False):
            spoken = start < len(segment) and bool(segment.sampled[start])
            turn += spoken
            text = escape("".join(texts[start:stop])).encode("utf-8", "replace").decode()
            kind, title = ("assistant", f"turn {turn}") if spoken else ("given", "given")
            facts = f"{stop - start} tokens"
            head = f"<header><b>{title}</b><span>{facts}</span></header>"
            blocks.append(f'<article class="{kind}">{head}<pre>{text}</pre></article>')
    return blocks
