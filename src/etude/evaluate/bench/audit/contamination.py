"""Did a checkpoint know the suite before it was asked? It is shown each request with the head of a file and writes the rest from memory.

What it recalls of a task's own hidden names and lines is set against what the same answers hold of *other* tasks' secrets (the shuffled
control): a model that merely writes plausible code of the kind hits both alike. The p-value is that of a permutation test over which
answer belongs to which task (Fisher's, one-sided, with the +1 of Phipson and Smyth 2010).

Limits: names that the request makes obvious count as recalled, so compare models on the same suite rather than read the figure alone;
a small p-value is a reason to look, not a proof. Suites of one's own sessions are the clean ones.
"""

from __future__ import annotations

import asyncio
import builtins
import json
import keyword
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from etude.agent.policy.protocol import Policy, Request
from etude.core.trace.message import Message
from etude.evaluate.bench.audit.recall import RecallFile, recall_key
from etude.evaluate.bench.grading.together import gather_all
from etude.tasks.task import Task

# What a reader of a task's request can't know: names and lines of its hidden parts that appear nowhere in sight.


# Shorter names and lines are guessed by everybody.
LEAST_NAME, LEAST_LINE = 5, 20
# Hidden parts that are words about the task and no code of it: anybody would write them so.
PROSE = frozenset({"check", "scripts"})
_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{{LEAST_NAME - 1},}}")


@dataclass(frozen=True)
class HiddenContent:
    """A task as the probe asks it: the request and the head of a file in sight, and what should not come to anybody's mind."""

    task_id: str
    prompt: str
    names: frozenset[str]
    lines: frozenset[str]

    @property
    def empty(self) -> bool:
        return not self.names and not self.lines


def hidden_content(task: Task) -> HiddenContent:
    """Of one task: the reference's changed lines and all hidden texts are secret, less all that the agent can see."""
    sight = "\n".join([task.instruction, *task.files, *task.files.values()])
    hidden = [text for path, text in task.solution.items() if text != task.files.get(path)]
    hidden += [text for key, value in task.hidden.items() if key not in PROSE for text in _texts(value)]
    seen_names, seen_lines = set(_NAME.findall(sight)), {line.strip() for line in sight.splitlines()}
    names = {name for text in hidden for name in _NAME.findall(text)} - seen_names
    lines = {line.strip() for text in hidden for line in text.splitlines()} - seen_lines
    names = {name for name in names if not keyword.iskeyword(name) and not hasattr(builtins, name)}
    return HiddenContent(
        task.id, _prompt(task), frozenset(names), frozenset(line for line in lines if len(line) >= LEAST_LINE)
    )


def recalled_share(riddle: HiddenContent, answer: str) -> float:
    """Share of the riddle's secrets that an answer holds; names and lines count alike, each by its own share."""
    words, lines = set(_NAME.findall(answer)), {line.strip() for line in answer.splitlines()}
    shares = [len(riddle.names & words) / len(riddle.names)] if riddle.names else []
    shares += [len(riddle.lines & lines) / len(riddle.lines)] if riddle.lines else []
    return sum(shares) / len(shares)


def _prompt(task: Task) -> str:
    """The request, the paths, and the first half of a file that the reference changes, as it is in sight."""
    path = next((path for path in task.solution if path in task.files), next(iter(task.files), ""))
    lines = task.files.get(path, "").splitlines()
    head = "\n".join(lines[: max(1, len(lines) // 2)])
    listed = ", ".join(sorted(task.files)[:20])
    return f"Request: {task.instruction}\n\nFiles: {listed}\n\n{path} begins:\n{head}"


def _texts(value: object) -> Iterable[str]:
    """The texts in a JSON value; of what is none, its spelling."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    else:
        yield json.dumps(value)


PERMUTATIONS = 2000
MAX_TOKENS = 2048
# With fewer there are too few orders for a p-value under 0.01.
LEAST_TASKS = 5


class TooFewTasks(ValueError):
    """A probe needs enough tasks with something hidden; says how many there are."""


@dataclass(frozen=True)
class Contamination:
    """`own`: mean share of a task's secrets in its own answer. `control`: in the answers to the other tasks. `recalled`: tasks whose
    answer holds more of their secrets than every other answer does."""

    policy: str
    tasks: int
    left_out: int  # tasks without secrets
    own: float
    control: float
    p_value: float
    recalled: tuple[str, ...]


async def probe(
    policy: Policy, tasks: Sequence[Task], known: RecallFile | None = None, *, seed: int = 0, concurrency: int = 4
) -> Contamination:
    """Ask `policy` all tasks, but for those whose answer is `known`. Raises TooFewTasks, and PolicyError where the endpoint is at
    fault: run again, what was answered is kept."""
    if policy.takes_tokens:
        raise ValueError(f"the policy {policy.name} takes tokens; serve the checkpoint behind an endpoint to probe it")
    riddles = [hidden_content(task) for task in tasks]
    asked = [one for one in riddles if not one.empty]
    if len(asked) < LEAST_TASKS:
        raise TooFewTasks(
            f"{len(asked)} of {len(tasks)} tasks hide something by which memory shows; a probe needs {LEAST_TASKS}"
        )
    slots = asyncio.Semaphore(concurrency)
    answers = await gather_all(_answer(policy, one, slots, seed, known) for one in asked)
    return weigh(policy.name, asked, answers, left_out=len(tasks) - len(asked), seed=seed)


def weigh(
    name: str, riddles: Sequence[HiddenContent], answers: Sequence[str], *, left_out: int = 0, seed: int = 0
) -> Contamination:
    """The statistics of answers that were given; pure."""
    hits = np.array([[recalled_share(one, answer) for answer in answers] for one in riddles])  # riddle by answer
    count = len(riddles)
    own, others = hits.diagonal(), hits[~np.eye(count, dtype=bool)].reshape(count, count - 1)
    rng = np.random.default_rng(seed)
    drawn = np.array([hits[np.arange(count), rng.permutation(count)].mean() for _ in range(PERMUTATIONS)])
    as_high = int((drawn >= own.mean() - 1e-12).sum())
    known = tuple(one.task_id for one, mine, best in zip(riddles, own, others.max(axis=1), strict=True) if mine > best)
    return Contamination(
        name, count, left_out, round(float(own.mean()), 4), round(float(others.mean()), 4),
        round((as_high + 1) / (PERMUTATIONS + 1), 5), known,
    )  # fmt: skip


async def _answer(
    policy: Policy, one: HiddenContent, slots: asyncio.Semaphore, seed: int, known: RecallFile | None
) -> str:
    prompt = (Path(__file__).parent / "prompts" / "recall.md").read_text(encoding="utf-8").strip()
    messages = (Message("system", prompt), Message("user", one.prompt))
    key = recall_key(policy.name, one.task_id, seed, [message.text for message in messages])
    session = f"recall-{one.task_id}"
    async with slots:
        if known is not None and (answer := known.get(key)) is not None:
            return answer
        try:
            said = await policy.complete(Request(session, messages, max_tokens=MAX_TOKENS, temperature=0.0, seed=seed))
        finally:
            await policy.release(session)
    answer = said.message.text if said.message else ""
    if known is not None:
        known.add(key, policy.name, one.task_id, answer)
    return answer
