"""Collects the scripted expert's sessions: real sandboxes, the real harness, one session file each (promise 1).

Resumable: a session file that ended is never made again, a torn one is removed and made again. Session number i is a pure
function of (settings, i): task, seed, judgement. Tasks are taken from the end of the training ids, from the back half
only, so that RL, which draws from the front half, meets none of them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from etude.agent.chat.renderer import Renderer
from etude.agent.harness.presets.preset import preset_of
from etude.agent.harness.settings import HarnessSettings
from etude.core.events.log import EventLog
from etude.core.trace.entry import SessionHeader
from etude.core.trace.reader import read_session
from etude.core.trace.session import Recorder, Session
from etude.core.trace.writer import SessionWriter
from etude.rollout.attempt import Attempt, AttemptSetup, attempt
from etude.rollout.campaign import CampaignJob, NullCampaignObserver, run_campaign
from etude.rollout.code_search import CodeSearch
from etude.rollout.retry import InfraFault
from etude.sandbox.protocol import Machines
from etude.tasks.generate.scripted_policies import Expert
from etude.tasks.generate.settings import SessionSettings
from etude.tasks.registry import GRADERS
from etude.tasks.task import Grader, Task, TaskSource, Verdict

STAGE = "sessions"
# Keeps seeds of neighbouring settings apart: more sessions than anyone collects under one seed.
SEED_STRIDE = 10_000_000
# Of the trigger. What starts a segment (request, summary, to-dos) fills a quarter of the laptop's; half leaves room to work.
EARLIER = (0.5, 0.75)


class NoGrader:
    """Demonstrations are learned from whatever their score, so no sandbox is spent on a verdict that nothing reads."""

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        return Verdict(0.0, reason="not graded")


async def collect_sessions(
    source: TaskSource,
    settings: SessionSettings,
    harness: HarnessSettings,
    renderer: Renderer | None,
    pool: Machines,
    folder: Path,
    log: EventLog,
    *,
    search: CodeSearch | None = None,
) -> int:
    """Makes what is missing of `settings.count` sessions in `folder`; returns how many it made. Raises InfraFault."""
    _check_count(settings.count, len(source.ids("train")))
    folder.mkdir(parents=True, exist_ok=True)
    numbers = range(settings.count)
    done = {session_key(number) for number in numbers if _whole(session_path(folder, number))}
    progress = _SessionProgress(log, len(done), settings.count)
    summary = await run_campaign(
        [CampaignJob(session_key(number), number) for number in numbers],
        _collector(source, settings, harness, renderer, pool, folder, search),
        done=done,
        append=_keep_recorded,
        workers=settings.concurrency,
        observer=progress,
    )
    return summary.made


def _keep_recorded(job: CampaignJob[int], result: Attempt) -> None:
    """The session's recorder has written its file by then."""


class _SessionProgress(NullCampaignObserver):
    """Reports sessions; the first infrastructure error ends the collection, for every worker meets the same."""

    def __init__(self, log: EventLog, made: int, whole: int) -> None:
        self._log, self._made, self._whole = log, made, whole

    def on_finish(self, job: CampaignJob[Any], record: None) -> None:
        self._made += 1
        self._log.progress(STAGE, self._made, self._whole)

    def on_failure(self, job: CampaignJob[Any], fault: InfraFault) -> None:
        raise fault


def _collector(
    source: TaskSource,
    settings: SessionSettings,
    harness: HarnessSettings,
    renderer: Renderer | None,
    pool: Machines,
    folder: Path,
    search: CodeSearch | None,
) -> Callable[[CampaignJob[int]], Awaitable[Attempt]]:
    """A function that records the session of one number. It raises InfraFault."""
    judges: dict[str, Grader] = dict.fromkeys(GRADERS, NoGrader())
    preset = preset_of(harness)

    async def collect_one(job: CampaignJob[int]) -> Attempt:
        number = job.work
        seed = settings.seed * SEED_STRIDE + number
        task = source.task(source.ids("train")[-1 - number])
        expert = Expert(task, seed, competence=settings.competence, preset=preset)
        record = partial(_recorder, session_path(folder, number), expert, seed)
        session_harness = summarizing(harness, settings, seed)
        setup = AttemptSetup(expert, pool, judges, session_harness, renderer, record=record, search=search)
        return await attempt(task, setup, name=job.key, seed=seed)

    return collect_one


def _check_count(count: int, offered: int) -> None:
    if count > offered - offered // 2:
        raise ValueError(
            f"sessions.count = {count}: only the back half of the {offered} training tasks is for demonstrations, RL "
            f"draws from the front; raise exercises.train_tasks to {2 * count} or lower sessions.count"
        )


def summarizing(harness: HarnessSettings, settings: SessionSettings, seed: int) -> HarnessSettings:
    """The harness of one session: some sessions meet their self-summary sooner, at half to three quarters of the trigger."""
    rng = random.Random(f"summary {seed}")
    if rng.random() >= settings.early_summaries:
        return harness
    trigger = round(harness.summary_trigger_tokens * rng.uniform(*EARLIER))
    return harness.model_copy(update={"summary_trigger_tokens": trigger})


def _recorder(path: Path, expert: Expert, seed: int, header: SessionHeader) -> Recorder:
    """A fresh session file, whatever an earlier try or a kill left there."""
    for suffix in (".jsonl", ".tokens", ".routes"):
        path.with_suffix(suffix).unlink(missing_ok=True)
    facts = {"stage": STAGE, "level": expert.level, "seed": seed, "competent": expert.plan.competent}
    return SessionWriter(path, replace(header, recipe={**header.recipe, **facts}), every="end")


def session_key(number: int) -> str:
    """The name of session `number` in the campaign and of its file."""
    return f"{number:06d}"


def session_path(folder: Path, number: int) -> Path:
    """Where session `number` lies."""
    return folder / f"{session_key(number)}.jsonl"


def read_sessions(folder: Path, *, first: int = 0) -> Iterator[Session]:
    """The collected sessions in order of their numbers, from the `first` on."""
    return map(read_session, sorted(folder.glob("*.jsonl"))[first:])


def _whole(path: Path) -> bool:
    """Whether a session file ended: its last line is the `end` entry."""
    if not path.is_file():
        return False
    lines = path.read_bytes().rsplit(b"\n", 2)
    if len(lines) < 3 or lines[-1]:
        return False
    return json.loads(lines[-2]).get("type") == "end"
