"""Going on after a kill: from the ledger's entries to a reconciler and a trainer in the state they were in (promise 6).

What is lost is the time of rollouts whose agent was at work, nothing else: what an agent left waits for its verdict on disk, scored rollouts
and finished groups are there too, decided batches are in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable

from etude.core.plugins import is_import_path, source_digests
from etude.core.trace.segment import Rollout
from etude.rl.controller import LearnerClient, StepObserver
from etude.rl.groups import RolloutGroup, UnfinishedGroup
from etude.rl.ledger import Progress, RlLedger, fold
from etude.rl.reconciler import Reconciler, RolloutLimits
from etude.rl.schedule import Schedule
from etude.rl.settings import RlSettings
from etude.rl.store import GroupStore
from etude.rl.uniform_groups import set_aside_rule
from etude.rl.window import StalenessWindow


class ReplayDiverged(Exception):
    """Training the recorded batches again came to other weights than before."""


def open_progress(ledger: RlLedger, schedule: Schedule) -> Progress:
    """What the ledger adds up to; a new ledger is bound to the schedule, an old one has to match it."""
    progress = fold(ledger.entries)
    if progress.plan is None:
        ledger.write("plan", digest=schedule.digest, groups=len(schedule))
    elif progress.plan != schedule.digest:
        raise ValueError(
            f"{ledger.path} belongs to another task list ({progress.plan}, this run has {schedule.digest}): settings or "
            "tasks have changed since; put them back, or use another output folder"
        )
    return progress


def require_same_sources(ledger: RlLedger, settings: RlSettings, others: Iterable[str] = ()) -> None:
    """Binds a new ledger to the sources of what the settings name by import path, and of `others`. Raises PluginError; ValueError for an old
    ledger with another source: a resumed run has to reach the same weights (promise 6)."""
    chosen = [settings.update.trust.kind, settings.baseline]
    digests = source_digests([*settings.rewards.custom, *filter(is_import_path, [*chosen, *others])])
    bound: dict[str, str] = {}
    for entry in ledger.entries:
        bound |= entry["digests"] if entry["kind"] == "sources" else {}
    for path in digests.keys() & bound.keys():
        if bound[path] != digests[path]:
            raise ValueError(
                f"{ledger.path}: the source of {path} has changed since the run began: put it back, or use another output folder"
            )
    if added := {path: digest for path, digest in digests.items() if path not in bound}:
        ledger.write("sources", digests=added)


def reconciler_at(
    progress: Progress, schedule: Schedule, settings: RlSettings, store: GroupStore
) -> Reconciler[Rollout]:
    """A reconciler that goes on where the ledger ends; the engine has to serve version `progress.next_step` by then."""
    reach = None if settings.window is None else settings.window * settings.groups_per_step
    window = StalenessWindow(settings.groups_per_step, settings.staleness_bound, progress.next_step, reach=reach)
    reconciler: Reconciler[Rollout] = Reconciler(
        schedule,
        window,
        limits=RolloutLimits(settings.slots, settings.group_size, settings.max_faults, settings.max_unreachable),
        version=progress.next_step,
        steps=settings.steps,
        aside=set_aside_rule(settings.set_aside),
    )
    begun = {
        group: UnfinishedGroup(version, dict(enumerate(store.load(group))))
        for group, version in progress.complete.items()
    }
    over = progress.trained | progress.aside | progress.unreachable.keys()
    for group, one in store.unfinished_groups().items():
        if group in over or group in begun or max([*one.results, *one.ended]) >= settings.group_size:
            store.forget(group)
        else:
            begun[group] = one
    reconciler.restore(over, begun, len(progress.unreachable))
    return reconciler


async def train_again(
    progress: Progress,
    schedule: Schedule,
    store: GroupStore,
    ledger: RlLedger,
    learner: LearnerClient,
    observer: StepObserver,
) -> None:
    """From the last checkpoint that the ledger names, train the batches decided since; raises ReplayDiverged if the weights come out different."""
    await learner.restore(progress.saved)
    for step in range(progress.saved, progress.next_step):
        groups = progress.batches[step]
        outcome = await learner.train(step, groups)
        before = progress.digests.get(step)
        if before is None:
            ledger.write("trained", step=step, digest=outcome.digest)
        elif before != outcome.digest:
            raise ReplayDiverged(
                f"step {step}, trained again, came to weights {outcome.digest}, but to {before} before the kill: another "
                "machine, thread count, rl.ranks, rl.parallel or version of torch? Remove the rl folder to start over, or go on where it began"
            )
        await observer.on_replay(outcome, [_stored(index, schedule, store) for index in groups])
    if progress.next_step > progress.saved:  # also the last checkpoint of a run that was killed before writing it
        await learner.save(progress.next_step)
        ledger.write("saved", step=progress.next_step)


def _stored(index: int, schedule: Schedule, store: GroupStore) -> RolloutGroup[Rollout]:
    rollouts = store.load(index)
    return RolloutGroup(index, schedule.task(index), len(rollouts), -1, dict(enumerate(rollouts)))
