"""Some of a bench's sessions as files, to read and to replay: of every policy a few solved and a few failed of each level.

`sessions/rl/two-bugs-failed-0.jsonl` and so on. Which ones is up to who finishes first; after a kill what lies there counts.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from etude.agent.chat.renderer import Renderer
from etude.core.trace.vocabulary import write_vocabulary
from etude.evaluate.bench.outcome import Outcome
from etude.rollout.attempt import Attempt
from etude.rollout.keep import keep_session


class Samples:
    """Keeps at most `count` sessions of one policy for each level and result."""

    def __init__(self, folder: Path, count: int, renderer: Renderer | None) -> None:
        self._folder = folder
        self._count = count
        self._kept = Counter(path.stem.rpartition("-")[0] for path in folder.glob("*.jsonl"))
        if count and renderer is not None:
            write_vocabulary(folder, renderer.vocabulary())

    def take(self, outcome: Outcome, attempt: Attempt) -> None:
        """Write the attempt's session if there are too few of its kind."""
        kind = f"{outcome.level}-{'solved' if outcome.score >= 1 else 'failed'}"
        if self._kept[kind] >= self._count:
            return
        facts = {"stage": "bench", "policy": self._folder.name, "level": outcome.level, "pass": outcome.attempt}
        keep_session(self._folder / f"{kind}-{self._kept[kind]}.jsonl", attempt, facts)
        self._kept[kind] += 1
