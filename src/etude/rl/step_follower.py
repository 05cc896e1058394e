"""What is written down after each training step, and the evaluation on validation tasks now and then."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from etude.core.trace.segment import Rollout
from etude.rl.controller import StepResult
from etude.rl.engines import Engines, Replica
from etude.rl.groups import RolloutGroup
from etude.rl.harder_tasks import HarderTasks
from etude.rl.metrics import component_values, outcome_values, step_values, tool_shares, versions
from etude.rl.rewards.alarms import AlarmMonitor
from etude.rl.run_context import RunContext
from etude.rl.sessions import KeptSessions
from etude.rl.steps import StepRecord, append, read
from etude.rollout.attempt import AttemptSetup
from etude.rollout.batch import AttemptJob, run_batch

# The trainer's names for what the report calls drift: mismatch on training batches as they come, versions mixed.
DRIFT = {
    "k3": "drift_k3",
    "p99_abs_dlogp": "drift_p99",
    "k3_unreplayed": "drift_k3_unreplayed",
    "p99_abs_dlogp_unreplayed": "drift_p99_unreplayed",
}
# Shown next to the progress bar.
SHOWN = ("pass_rate", "reward", "staleness_max", "drift_p99")


class StepFollower:
    """`controller.StepObserver` of a run."""

    def __init__(
        self,
        run: RunContext,
        setup: AttemptSetup,
        sessions: KeptSessions,
        engines: Engines,
        harder: HarderTasks | None = None,
        looks: Sequence[Callable[[RolloutGroup[Rollout]], None]] = (),
    ) -> None:
        self._looks = looks  # at each finished group: what one raises ends the run
        self._harder = harder
        self._run = run
        self._setup = setup
        self._sessions = sessions
        self._engines = engines
        self._evaluation: asyncio.Task[None] | None = None
        self._watch = AlarmMonitor()
        self._aside: list[list[float]] = []  # outcomes of the groups set aside since the last step
        self._recorded: set[int] = set()  # by earlier lives
        for record in read(run.folder / "steps.jsonl"):
            self._recorded.add(record.step)
            self._watch.look(record.values)

    async def on_step(self, step: StepResult, groups: list[RolloutGroup[Rollout]]) -> None:
        """Figures of the step into `steps.jsonl` and the event log, and those of its evaluation, which may come later."""
        every = self._run.settings.eval_every
        if not every or (step.step + 1) % every:
            self._write(step, groups, {})
            return
        await self.on_evaluation_end()  # one at a time
        lent = await self._engines.lend()
        if lent is None:
            mine = replace(self._setup, policy=self._engines.newest)  # engines of regions may have older weights
            self._write(step, groups, await self._evaluate(mine))
        else:
            self._evaluation = asyncio.create_task(self._evaluate_aside(lent, self._write(step, groups, {})))

    async def on_evaluation_end(self) -> None:
        """No evaluation is under way any more."""
        if self._evaluation is not None:
            await self._evaluation

    async def close(self) -> None:
        """The run ends, whatever is under way."""
        if self._evaluation is not None:
            self._evaluation.cancel()
            await asyncio.gather(self._evaluation, return_exceptions=True)

    async def on_replay(self, step: StepResult, groups: list[RolloutGroup[Rollout]]) -> None:
        """A step trained again after a kill, to the same weights. Its line stays: the times, the delta and the evaluation in
        it can't be measured again, because no engine serves yet. Only a step that was killed before its line gets one now."""
        if step.step in self._recorded:
            self._sessions.record_step(step, groups)
        else:
            self._write(step, groups, {})

    def note(self, text: str) -> None:
        self._run.observer.note(text)

    def on_group(self, group: RolloutGroup[Rollout]) -> None:
        """Raises LimitsTooSmall where rollouts have no room, PolicyCollapsed where they no longer solve anything."""
        for look in self._looks:
            look(group)

    def on_set_aside(self, group: RolloutGroup[Rollout]) -> None:
        """A group that is not trained is still heard of by who makes tasks harder."""
        self._aside.append(_outcomes(group))
        self._hear([group])

    async def _evaluate_aside(self, lent: Replica, record: StepRecord) -> None:
        """Evaluate on an engine of its own, at the step's version, while the run goes on with the others."""
        version, life, began_s = lent.served, lent.lifeline.generation, time.monotonic()
        try:
            found = await self._evaluate(replace(self._setup, policy=lent.client))
            if not lent.lent or (lent.served, lent.lifeline.generation) != (version, life):
                text = f"the evaluation of step {record.step} has no figure: its engine died or was called back, and did not keep version {version}"
                self._run.observer.note(text)
                return
        finally:
            await self._engines.take_back(lent)
        found["eval_s"] = time.monotonic() - began_s
        append(self._run.folder / "steps.jsonl", replace(record, values=record.values | found))
        self._run.observer.metric(record.step, **found)

    def _write(self, step: StepResult, groups: list[RolloutGroup[Rollout]], evaluated: dict[str, float]) -> StepRecord:
        run = self._run
        evaluated = {**evaluated, **self._hear(groups)}
        rollouts = [rollout for group in groups for rollout in group.members]
        values = step_values(step.step, rollouts, step.components, step.advantages)
        for name, value in step.values.items():
            values[DRIFT.get(name, name)] = value
        aside, self._aside = self._aside, []
        values["set_aside"] = float(len(aside))
        values |= outcome_values([*map(_outcomes, groups), *aside])
        values |= component_values(step.measured, step.weights) | tool_shares(rollouts) | evaluated
        counts: Counter[int] = Counter()
        for rollout in rollouts:
            counts.update(versions(rollout))
        alarms = self._watch.look(values)
        values["alarms"] = float(len(alarms))
        record = StepRecord(
            step.step,
            [group.index for group in groups],
            values,
            {str(version): count for version, count in sorted(counts.items())},
            step.components,
            step.advantages,
            step.measured,
            step.weights,
            [f"{alarm.cause}: {alarm.text}" for alarm in alarms],
        )
        append(run.folder / "steps.jsonl", record)
        self._sessions.record_step(step, groups)
        run.observer.metric(step.step, **values)
        for alarm in alarms:
            run.observer.note(f"step {step.step}, {alarm.cause}: {alarm.text}")
        run.observer.progress(
            step.step + 1, run.settings.steps, **{name: values[name] for name in SHOWN if name in values}
        )
        return record

    def _hear(self, groups: list[RolloutGroup[Rollout]]) -> dict[str, float]:
        """Tell the service how the groups ended; the share of them that had a harder sibling, and how many were made for the run so far."""
        if self._harder is None:
            return {}
        for group in groups:
            self._harder.record_scores(group.index, _outcomes(group))
        return self._harder.figures({group.index: group.task_id for group in groups})

    async def _evaluate(self, setup: AttemptSetup) -> dict[str, float]:
        """Share of validation tasks solved by the setup's policy, of those that could be attempted (promise 8: without any there is no
        figure); generation for training goes on at the same time."""
        source = self._run.source
        ids = source.ids("validation")
        jobs = [
            AttemptJob(source.task(ids[i]), f"eval-{i}", seed=i)
            for i in range(min(self._run.settings.eval_tasks, len(ids)))
        ]
        batch = await run_batch(jobs, setup, concurrency=max(1, self._run.settings.slots // 2))
        for fault in batch.faults.values():
            self._run.observer.note(f"evaluation without {fault}")
        if not batch.attempts:
            return {}
        return {"eval_pass_rate": sum(attempt.verdict.passed for attempt in batch.attempts) / len(batch.attempts)}


def _outcomes(group: RolloutGroup[Rollout]) -> list[float]:
    return [rollout.rewards["outcome"] for rollout in group.members]
