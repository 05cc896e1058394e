"""The trainer's side of rl: groups from disk in, rewards, advantages, one policy step, weights out.

Weights go out in the background: `publish` copies them and returns, `publication_cost` waits for the upload while the next step trains.

Plain class; `placement.py` puts it into a process of its own, or one into each of several that train together (`ranks`). It holds no
queue and no plan: `train` is a pure function of its state and the stored groups, and exact resume depends on that (promise 6).
All ranks restore and train, and come to the same bits or stop; rank 0 alone writes. The store of weights is the only way out of it.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from etude.core.plugins import is_import_path
from etude.core.trace.completion import SampledTokens
from etude.core.trace.gap_file import write_gaps
from etude.core.trace.segment import Rollout
from etude.learn.model.adapter_files import save_adapter
from etude.learn.model.adapters import add_adapters, trained_state
from etude.learn.model.card import Training
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import check_companions, load_checkpoint, save_checkpoint
from etude.learn.model.device import compute_reproducibly, device_of
from etude.learn.model.heap import fit_heap
from etude.learn.model.settings import Impl
from etude.learn.parallel.shared_training import ALONE as UNSPLIT
from etude.learn.parallel.shared_training import SharedTraining
from etude.learn.train.checkpoint import TrainingStateError, load_state, save_state, state_of
from etude.learn.train.feedback import FlaggedTurn, add_feedback, feedback_of_all
from etude.learn.train.fresh_drafts import FreshDrafts
from etude.learn.train.policy_step import PolicyTrainer
from etude.learn.train.ranks import ALONE, Ranks, RanksDiverged
from etude.learn.train.scores import BatchScores
from etude.learn.weights.adapter_folder import ADAPTER
from etude.learn.weights.publisher import BackgroundPublisher, Publication, Publisher
from etude.learn.weights.state import state_digest
from etude.learn.weights.store import WeightStore
from etude.rl.baseline import RunningMeans, by_group, from_function, of_sound_groups
from etude.rl.hints.rules import choose_turns
from etude.rl.rewards.component import RewardInput
from etude.rl.rewards.library import k1_sum, measure_components
from etude.rl.rewards.mix import MIXED, Mix, MixedFile, ever_weighed, mix_at, mix_rewards
from etude.rl.settings import RlSettings
from etude.rl.store import GroupStore
from etude.rl.weight_store import store_of

if TYPE_CHECKING:
    from etude.learn.engine.probe import ProbeMismatch

T = TypeVar("T")
# The ledger may name the state before the newest (killed between writing the state and noting it).
STATES_KEPT = 2


@dataclass(frozen=True)
class TrainedStep:
    """One step: digest of the weights after it, the trainer's figures, and per rollout its reward parts and advantage."""

    digest: str
    figures: dict[str, float]
    components: list[dict[str, float]]
    advantages: list[float]
    busy_s: float
    cpu_s: float = 0.0  # of the whole processes of all ranks
    measured: list[dict[str, float]] = field(default_factory=list)  # per rollout its components before any weight
    weights: dict[str, float] = field(default_factory=dict)  # what they were mixed with
    notes: list[str] = field(default_factory=list)  # which rollouts were left out, and why


class Learner:
    """Holds model, reference, optimizer and publisher. Callers may be of several threads; whatever reads or writes the model is done by one
    thread of its own, in turn: torch counts threads by the thread that asks, and glibc keeps what a step frees for the thread that freed it,
    so steps on six threads would hold six times the memory of one."""

    def __init__(
        self,
        checkpoint: Path,
        folder: Path,
        settings: RlSettings,
        threads: int,
        ranks: Ranks = ALONE,
        impl: Impl = "auto",
    ) -> None:
        self._model = ThreadPoolExecutor(1, "model", torch.set_num_threads, (threads,))
        self._opening = threading.Lock()
        self._published: dict[int, Future[Publication]] = {}  # on their way, or there, in this life
        self.ranks = ranks
        self.shared: SharedTraining = UNSPLIT
        self.checkpoint = checkpoint
        self.impl: Impl = impl
        self.folder = folder
        self.settings = settings
        self.groups = GroupStore(folder / "groups")
        self.mixes = MixedFile(folder / MIXED)
        self._at_model(self._begin)
        check_companions(self.trainer.model.config, checkpoint)

    @cached_property
    def _own_publisher(self) -> BackgroundPublisher:
        store = WeightStore(store_of(self.settings, self.folder))
        return BackgroundPublisher(Publisher(store, anchor_every=self.settings.anchor_every))

    @property
    def publisher(self) -> BackgroundPublisher:
        """The one writer of the store: opened by the process that publishes, which is rank 0."""
        with self._opening:
            return self._own_publisher

    def restore(self, step: int) -> None:
        """The state after `step` steps, from the checkpoint that holds it; 0 is the initial policy."""
        self._at_model(self._restore, step)

    def _restore(self, step: int) -> None:
        self._begin()
        if step:
            path = state_of(self.folder / "states", step)
            try:
                state = load_state(path, self.shared, self.trainer.optimized)
            except TrainingStateError as error:  # its own advice, to do without the file, is no way on from a ledger
                raise TrainingStateError(
                    f"{path}, from which the ledger goes on, can't be read ({error.__cause__}): put it back, or remove "
                    f"{self.folder} to start RL over"
                ) from error
            if ("drafts" in state) != (self.drafts is not None):
                raise TrainingStateError(
                    f"{path} was written with another rl.drafts.every: put that back, and run again"
                )
            self.trainer.load_state_dict(state.get("trainer", state))  # earlier versions wrote a table of it
            self.means.load_state_dict(state["baseline"])
            if self.drafts is not None:
                self.drafts.load_state_dict(state["drafts"])

    def train(self, groups: list[int]) -> TrainedStep:
        """One step on the stored groups; their order decides the sums' order, so it is part of the input.

        With other ranks all are asked at once. Raises RankLost if one of them is gone, RanksDiverged if their weights differ after it.
        """
        return self._at_model(self._train, groups)

    def _train(self, groups: list[int]) -> TrainedStep:
        started, cpu_started = time.perf_counter(), time.process_time()
        batch = [self.groups.load(group) for group in groups]
        rollouts = [rollout for group in batch for rollout in group]
        mix = (
            self.mixes.at(self.trainer.steps, self.settings)
            if self._first
            else mix_at(self.trainer.steps, self.settings)
        )
        scores = self.trainer.score(rollouts, with_reference="kl" in mix.weights)
        values = [self._measured(i, rollout, scores) for i, rollout in enumerate(rollouts)]
        parts = _mixed_by_group(values, [len(group) for group in batch], mix)
        shared = self._advantages([sum(part.values()) for part in parts], batch)
        if self._first:
            self._keep_gaps(groups, batch, scores)
        sound = self.trainer.sound(rollouts, shared, scores)
        fed = self._feed_back(sound)
        figures = fed | self.trainer.update(rollouts, shared, scores)
        if self.drafts is not None:
            figures |= self.drafts.after(self.trainer.steps, sound)
        digest = self._digest()
        busy_s, cpu_s = time.perf_counter() - started, sum(self.ranks.gather(time.process_time() - cpu_started))
        notes = [*_broken_rewards(rollouts, parts), *self.trainer.broken]
        return TrainedStep(digest, figures, parts, shared, busy_s, cpu_s, values, mix.weights, notes)

    def publish(self, version: int) -> bool:
        """Copies what is trained, adapters alone where the model has some, to be put into the store as `version`; False where these are later
        weights: a trainer that came back has trained on, and that version is never published. Raises PublishFailed where an earlier one could
        not be."""
        return self._at_model(self._publish, version)

    def _publish(self, version: int) -> bool:
        if self.trainer.steps > version:
            return False
        whole = self._whole()
        if self._first and version not in self._published:
            future = self.publisher.publish(trained_state(whole), version)
            self._published = {**dict([*self._published.items()][-1:]), version: future}
        return True

    def publication_cost(self, version: int) -> dict[str, Any] | None:
        """What the version cost, as soon as it is in the store; None where `publish` was asked for it in no life, or in an earlier one."""
        future = self._published.get(version)
        if future is None:
            return None
        published = future.result()
        return asdict(published) | {"ratio": published.ratio}

    def mend(self, version: int) -> None:
        """The weights were published as `version`, and can't be read: an anchor leads there. Raises Unreachable where they are not at hand."""
        if (mended := self._at_model(self._mend, version)) is not None:
            mended.result()

    def _mend(self, version: int) -> Future[Any] | None:
        state = trained_state(self._whole()) if self.trainer.steps == version else None
        return self.publisher.mend(version, state) if self._first else None

    def heal(self) -> None:
        """A region can't walk the chain: the next publication brings an anchor."""
        self.publisher.heal()

    def join(self, receiver: str, left: str | None) -> None:
        """A new engine incarnation listens; the one it replaces, if any, does no longer."""
        if left is not None:
            self.publisher.leave(left)
        self.publisher.join(receiver)

    def leave(self, receiver: str) -> None:
        """An engine is gone for good."""
        self.publisher.leave(receiver)

    def acknowledge(self, receiver: str, version: int) -> None:
        """`receiver` serves `version`: deltas may start from it (promise 7)."""
        self.publisher.acknowledge(receiver, version)

    def save(self, step: int) -> None:
        """The whole training state after `step` steps."""
        self._at_model(self._save, step)

    def _save(self, step: int) -> None:
        state: dict[str, Any] = {**self.trainer.state_dict(), "baseline": self.means.state_dict()}
        if self.drafts is not None:
            state["drafts"] = self.drafts.state_dict()
        save_state(self.folder / "states", step, state, STATES_KEPT, self.shared, self.trainer.optimized)

    def export(self, folder: Path) -> None:
        """The policy as a Hugging Face directory, with its draft layers; where RL taught the trunk alone, with the checkpoint's."""
        drafts_from = self.checkpoint if self.drafts is None else None
        self._at_model(self._export, folder, drafts_from)

    def _export(self, folder: Path, drafts_from: Path | None) -> None:
        whole = self._whole()
        if not self._first:
            return
        data = f"{self.trainer.steps:,} steps of reinforcement learning on rollouts of the run's training tasks"
        save_checkpoint(whole, folder, self.checkpoint, drafts_from=drafts_from, trained=Training("rl", data))
        if self.settings.update.lora.rank:
            save_adapter(whole, self.settings.update.lora, folder.with_name(ADAPTER), self.checkpoint)

    def compare(self, sampled: list[tuple[tuple[int, ...], SampledTokens]]) -> ProbeMismatch | None:
        """How far what the engine sampled after these prompts is from the plain forward of the same version; None but on the first rank."""
        from etude.learn.engine.probe import compare  # it loads the engine, which only the end of a run needs

        whole = self._at_model(self._whole)
        return self._at_model(compare, whole, sampled) if self._first else None

    def _whole(self) -> CausalLM:
        """The policy in one process, on the first rank, as it is now."""
        return self.trainer.model

    def _at_model(self, work: Callable[..., T], *arguments: Any) -> T:
        """Its result, once all earlier requests are done."""
        return self._model.submit(work, *arguments).result()

    def _begin(self) -> None:
        """The initial policy."""
        settings = self.settings
        self.means = RunningMeans(settings.baseline_horizon)
        device = self._whole_device
        model = load_checkpoint(self.checkpoint, drafts=settings.drafts.every > 0, impl=self.impl)
        reference = None
        if settings.update.lora.rank:
            add_adapters(model, settings.update.lora)  # which may halve what is moved to the device
            reference = model if ever_weighed("kl", settings) else None  # without its adapters
        elif ever_weighed("kl", settings):
            reference = load_checkpoint(self.checkpoint, device=device, impl=self.impl)
        self.trainer = self._trainer(model.to(device), reference)
        self.drafts = (
            FreshDrafts(model, settings.drafts, settings.update, self.ranks) if settings.drafts.every else None
        )

    @property
    def _whole_device(self) -> torch.device:
        """Where whole models are."""
        return device_of(self.settings.device, "rl.device")

    def _trainer(self, model: CausalLM, reference: CausalLM | None) -> PolicyTrainer:
        return PolicyTrainer(model, reference, self.settings.update, self.settings.steps, self.ranks)

    @property
    def _first(self) -> bool:
        return self.ranks.rank == 0

    def _digest(self) -> str:
        """Of the weights that all ranks hold."""
        digests = self.ranks.gather(state_digest(trained_state(self.trainer.model)))
        if len(set(digests)) > 1:
            raise RanksDiverged(
                f"after step {self.trainer.steps} the trainer's ranks hold different weights ({', '.join(d[:12] for d in digests)}): give "
                "all of them the same machine, threads and versions, or set rl.ranks to 1, and run again: it goes on"
            )
        return digests[0]

    def _advantages(self, rewards: list[float], batch: list[list[Rollout]]) -> list[float]:
        """In the order of the rollouts; NaN in groups with a reward that is not finite, which the trainer leaves out."""
        rollouts = [rollout for group in batch for rollout in group]
        categories = [rollout.info.get("category", "") for rollout in rollouts]
        groups = [number for number, group in enumerate(batch) for _ in group]

        def held_against(sound: list[float], places: list[int]) -> list[float]:
            if self.settings.baseline == "category":
                return self.means.advantages(sound, [categories[place] for place in places])
            if is_import_path(self.settings.baseline):
                return from_function(
                    self.settings.baseline,
                    sound,
                    [groups[place] for place in places],
                    [rollouts[place] for place in places],
                )
            return by_group(sound, [*Counter(groups[place] for place in places).values()])

        return of_sound_groups(rewards, [len(group) for group in batch], held_against)

    def _keep_gaps(self, groups: list[int], batch: list[list[Rollout]], scores: BatchScores) -> None:
        """Per token what the trainer's logprobs are above the sampler's, for readers of rollouts."""
        found = iter(scores.current)
        for group, rollouts in zip(groups, batch, strict=True):
            gaps = [_gap(rollout, next(found)) for rollout in rollouts]
            write_gaps(self.folder / "gaps" / f"{group:06d}.npy", gaps)

    def _feed_back(self, rollouts: list[Rollout]) -> dict[str, float]:
        """The gradient of the targeted feedback, which the update adds its own to."""
        settings = self.settings.feedback
        if not settings.weight:
            return {}
        turns = [
            FlaggedTurn(rollout.segments[row["segment"]], row["at"], row["start"], row["stop"], tuple(row["ids"]))
            for rollout, row in choose_turns(rollouts, settings.most)
        ]
        mine = turns[self.ranks.rank :: self.ranks.size]
        figures = add_feedback(self.trainer.model, mine, len(rollouts), settings, self.settings.update)
        return feedback_of_all(self.ranks.gather(figures))

    def _measured(self, index: int, rollout: Rollout, scores: BatchScores) -> dict[str, float]:
        k1 = k1_sum(rollout.segments, scores.reference[index]) if scores.reference is not None else None
        return measure_components(RewardInput(rollout, self.settings, k1))


class TrainerProcess(Learner):
    """What the trainer actor holds. Its process imports this module and no engine, so that it is ready sooner."""

    def __init__(
        self,
        checkpoint: Path,
        folder: Path,
        settings: RlSettings,
        threads: int,
        rank: int = 0,
        meeting: str = "",
        impl: Impl = "auto",
    ) -> None:
        """With `meeting`, one of several ranks: waits there for the others first."""
        compute_reproducibly(device_of(settings.device, "rl.device"))
        ranks: Ranks = ALONE
        if meeting:
            import ray

            from etude.learn.train.gloo_ranks import GlooRanks

            host = ray.util.get_node_ip_address()
            ranks = GlooRanks(meeting, host, rank, settings.ranks, settings.rank_silence_s)
        super().__init__(checkpoint, folder, settings, threads, ranks, impl)
        fit_heap(self.trainer.model)


def _gap(rollout: Rollout, current: list[np.ndarray]) -> np.ndarray:
    """(S,) trainer minus sampler, of the rollout's sampled tokens, segment after segment."""
    parts = [now[s.sampled] - s.logprobs[s.sampled] for s, now in zip(rollout.segments, current, strict=True)]
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def _broken_rewards(rollouts: list[Rollout], parts: list[dict[str, float]]) -> list[str]:
    """A line for each part of a reward that is not finite."""
    return [
        f"rollout {rollout.id} (task {rollout.task_id}): its reward's part {name} is {value}"
        for rollout, part in zip(rollouts, parts, strict=True)
        for name, value in part.items()
        if not math.isfinite(value)
    ]


def _mixed_by_group(values: list[dict[str, float]], sizes: list[int], mix: Mix) -> list[dict[str, float]]:
    """The parts of every rollout's reward, in the order of the rollouts."""
    out: list[dict[str, float]] = []
    for size in sizes:
        out += mix_rewards(values[len(out) : len(out) + size], mix)
    return out
