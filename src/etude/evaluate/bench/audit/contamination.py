"""Did a checkpoint know the suite before it was asked? It is shown each request with the head of a file and writes the rest from memory.

What it recalls of a task's own hidden names and lines is set against what the same answers hold of *other* tasks' secrets (the shuffled
control): a model that merely writes plausible code of the kind hits both alike. The p-value is that of a permutation test over which
answer belongs to which task (Fisher's, one-sided, with the +1 of Phipson and Smyth 2010).

Limits: names that the request makes obvious count as recalled, so compare models on the same suite rather than read the figure alone;
a small p-value is a reason to look, not a proof. Suites of one's own sessions are the clean ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from etude.agent.policy.protocol import Policy, Request
from etude.core.trace.message import Message
from etude.evaluate.bench.audit.recall import RecallFile, recall_key
from etude.evaluate.bench.audit.riddle import HiddenContent, hidden_content, recalled_share
from etude.evaluate.bench.grading.together import gather_all
from etude.tasks.task import Task

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
