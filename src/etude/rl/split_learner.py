"""RL's trainer over ranks that each hold a part of the model (`rl.parallel`): parameters, gradients and moments are split as in pretraining and SFT.

Every rank is asked whatever needs the weights, at the same time and in the same order (`placement.RankGroup`). The first one has the whole model in
addition: it gets the weights where they leave the trainer, for the engines and for the checkpoint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.distributed.tensor import DTensor

from etude.learn.model.adapters import trained_state
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.compute import compute_in
from etude.learn.model.heap import fit_heap
from etude.learn.model.settings import Impl
from etude.learn.parallel.launched import as_loss
from etude.learn.parallel.shard import Meshes
from etude.learn.parallel.shared_training import without_weights
from etude.learn.parallel.split_model import SplitModel, split_over
from etude.learn.train.gloo_ranks import join_default_group
from etude.learn.train.policy_step import PolicyTrainer
from etude.learn.train.ranks import RanksDiverged
from etude.learn.weights.state import state_digest
from etude.rl.learner import Learner
from etude.rl.settings import RlSettings

T = TypeVar("T")


class SplitLearner(Learner):
    """One of the ranks of `settings.parallel`, in a process whose default group they are."""

    _meshes: Meshes | None = None
    _whole_model: CausalLM

    @property
    def _whole_device(self) -> torch.device:
        return torch.device("cpu")  # a GPU has a part of the model alone

    def _trainer(self, model: CausalLM, reference: CausalLM | None) -> PolicyTrainer:
        part, shared = self._split(model)
        if reference is not None:
            reference = part if reference is model else self._split(reference)[0]
        self.shared, self._whole_model = shared, model if self._first else part
        if self._first:
            compute_in(model, self.settings.update.compute, experts=self.settings.update.expert_products)
        return PolicyTrainer(part, reference, self.settings.update, self.settings.steps, self.ranks, shared)

    def _split(self, model: CausalLM) -> tuple[CausalLM, SplitModel]:
        self._meshes = self._meshes or Meshes(self.settings.parallel, self.settings.device)
        part = without_weights(model, model)
        return part, split_over(part, self._meshes, self.settings.update.compute, model if self._first else None)

    def _whole(self) -> CausalLM:
        self.shared.show()
        return self._whole_model

    def _digest(self) -> str:
        """Of the parts of all ranks. Copies of a part are the same bits."""
        own = {
            name: t.to_local() if isinstance(t, DTensor) else t for name, t in trained_state(self.trainer.model).items()
        }
        digests, parts = self.ranks.gather(state_digest(own)), self.settings.parallel.shard
        if any(digest != digests[rank % parts] for rank, digest in enumerate(digests)):
            raise RanksDiverged(
                f"after step {self.trainer.steps} copies of the same part of the model differ ({', '.join(d[:12] for d in digests)}): give all "
                "ranks the same machine, threads and versions, or set rl.parallel.replicate to 1, and run again: it goes on"
            )
        return hashlib.sha256("\n".join(digests[:parts]).encode()).hexdigest()

    def _at_model(self, work: Callable[..., T], *arguments: Any) -> T:
        with as_loss(self.ranks.rank, self.ranks.size):  # of the exchanges inside of the model
            return super()._at_model(work, *arguments)


class SplitTrainerProcess(SplitLearner):
    """What the trainer actor of a rank holds."""

    def __init__(
        self,
        checkpoint: Path,
        folder: Path,
        settings: RlSettings,
        threads: int,
        rank: int,
        meeting: str,
        impl: Impl = "auto",
    ) -> None:
        """Waits at `meeting` for the others first."""
        import ray

        host, size = ray.util.get_node_ip_address(), settings.parallel.ranks
        ranks = join_default_group(meeting, host, rank, size, settings.rank_silence_s, settings.device)
        super().__init__(checkpoint, folder, settings, threads, ranks, impl)
        fit_heap(self._whole_model)
