"""One policy-gradient step on a batch of rollouts: REINFORCE with the group's mean as baseline, and little else.

How it differs from GRPO: no division by the group's std, no length normalisation (a constant instead), no PPO epochs: each
batch is used once. w_t says what a token that older weights sampled counts: by default its truncated importance ratio
(`importance_weights.py`). The loss is

    - 1 / (rollouts * loss_tokens) * sum over rollouts, segments, sampled tokens of  A_rollout * w_t * log p_t

Promises: a rollout counts once, however many segments it was cut into (4); logprobs are recomputed with the engine's
experts replayed, and the mismatch to what the engine reported is measured (3).

The caller scores first (reference logprobs for the k1 KL, which belongs into the *reward*), then computes advantages, then
updates. Each of `ranks` scores and learns its share of the rows (`balance`), and the sum of all gradients makes them one. A
share that fits `graph_tokens` keeps the graph of the scoring pass, so the update costs a backward pass only; and tokens that
attempts at one task have in common run once (`shared_prefix`).

The ranks hold the whole model each, or parts of it (`shared`). Then every forward and backward pass is an exchange of all of them, so a rank that has
fewer micro-batches than another computes empty ones, and no graph is kept.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.core.trace.segment import Rollout
from etude.learn.model.adapters import adapters_off, has_adapters, load_trained_state, trained_state
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.compute import compute_in
from etude.learn.model.count import ComputeCost
from etude.learn.model.router import balanced_bias, expert_load
from etude.learn.parallel.shared_training import ALONE as UNSPLIT
from etude.learn.parallel.shared_training import OptimizedParameters, SharedTraining
from etude.learn.train.balance import Row, dealt
from etude.learn.train.context_share import rollout_part
from etude.learn.train.importance_weights import ImportanceStatistics, importance_weights
from etude.learn.train.loop import TrainingDiverged
from etude.learn.train.losses import logprobs_and_entropy, policy_coefficients
from etude.learn.train.next_token import routers
from etude.learn.train.optimizer import DRAFTS, Optimizers
from etude.learn.train.ranks import ALONE, Ranks, sum_gradients
from etude.learn.train.replay import replaying
from etude.learn.train.rollout_batch import RolloutBatch, empty_batch, rollout_batches
from etude.learn.train.schedule import policy_lr_factor
from etude.learn.train.scores import BatchScores, RankScores, flat, of_rows, places_of, together
from etude.learn.train.settings import PolicyStepSettings


class PolicyTrainer:
    """Holds the learning model and its Adam. After n updates the weights are policy version n.

    A `reference` that is `model` means the model without its adapters.

    `total_steps` is where the decay of the learning rate ends; without it there is none. Draft layers, if the model has any, are
    no part of it (`fresh_drafts`). `shared`: what the ranks do together if `model` and `reference` are split over them.
    """

    def __init__(
        self,
        model: CausalLM,
        reference: CausalLM | None,
        settings: PolicyStepSettings,
        total_steps: int | None = None,
        ranks: Ranks = ALONE,
        shared: SharedTraining = UNSPLIT,
    ) -> None:
        self.model = model
        self.ranks = ranks
        self.shared, self._split = shared, shared.ranks > 1
        self.reference = reference
        self.settings = settings
        self._batch_tokens, self._graph_tokens = settings.step_tokens
        self.total_steps = total_steps
        self.steps = 0
        self._bad_in_a_row = 0
        self.broken: list[str] = []  # of the last update, a line for each rollout with a number that is not finite
        for network in (model,) if reference is None else (model, reference):
            compute_in(network, settings.compute, settings.recompute, settings.expert_products)
        self._device = model.embed.weight.device
        self._routers = routers(model)
        self._cost = ComputeCost.of_model(model.config)
        trainable = [p for name, p in model.named_parameters() if p.requires_grad and not name.startswith(DRAFTS)]
        adam = torch.optim.AdamW(trainable, settings.lr, settings.adam_betas, weight_decay=0.0, fused=True)
        self._optimizers = Optimizers([adam], settings.clip_norm)
        self._adapted = has_adapters(model)
        if reference is not None and reference is not model:
            reference.requires_grad_(False).eval()

    def score(self, rollouts: Sequence[Rollout], *, with_reference: bool = True) -> BatchScores:
        """Logprobs of all sampled tokens under the current weights and, if wanted and there is one, the reference.

        Each rank runs its share of the rows and hears the others'. Raises RankLost.
        """
        context = self.shared.context.ranks
        share = dealt(rollouts, self._cost, self.ranks.size // context)
        batches = self._batches(rollouts, share.rows[self.ranks.rank // context])
        forwarded = sum(b.ids.numel() for b in batches if not b.idle)
        keep = forwarded <= self._graph_tokens and not self._split
        graphs: list[Tensor] = []
        values: list[Tensor] = []
        entropies: list[Tensor] = []
        load: Tensor | None = None
        self.model.train()
        with replaying(self.model, self.settings.replay_ratio) as replay:
            for batch in batches:
                with torch.enable_grad() if keep else torch.no_grad():
                    logprobs, entropy, routes = self._forward(self.model, batch, replay=True)
                if keep:
                    graphs.append(logprobs)
                counted = self.settings.router_bias_rate and self.model.config.experts and not batch.idle
                if routes is not None and counted:
                    batch_load = expert_load(routes[0], self.model.config.experts)
                    load = batch_load if load is None else load + batch_load
                values.append(logprobs.detach())
                entropies.append(entropy)
        reference = self._of_reference(batches) if with_reference else None
        unreplayed = self._plain(self.model, batches) if self._compares(rollouts) else None
        counts = (replay.replayed, replay.replaced, replay.agreed)
        loads = None if load is None else load.cpu()
        places = places_of(batches)
        mine = RankScores(flat(values), flat(entropies), reference, unreplayed, counts, loads, forwarded, *places)
        parts = of_rows([RankScores(**part) for part in self.ranks.gather(vars(mine))], context)
        return together(self.steps, rollouts, share, parts, batches, graphs)

    def update(self, rollouts: Sequence[Rollout], advantages: Sequence[float], scores: BatchScores) -> dict[str, float]:
        """One optimizer step; returns its figures. Uses `scores` up: each batch of rollouts is trained on once.

        A rollout with a number that is not finite (its advantage, a logprob) costs its group, not the batch: `broken` names it.
        """
        if len(advantages) != len(rollouts):
            raise ValueError(f"{len(advantages)} advantages for {len(rollouts)} rollouts; give one each, in order")
        if scores.step != self.steps:
            raise ValueError(f"scores are of step {scores.step}, the trainer is at {self.steps}; score again")
        kept = self._without_broken_groups(rollouts, advantages, scores)
        sound, advantages, scores = kept or (rollouts, [0.0] * len(rollouts), scores)
        figures = self._figures(sound, scores)
        if self.broken:
            figures["dropped_groups"] = float(len({r.group for r in rollouts}) - len({r.group for r in sound if kept}))
        norm = math.nan  # where no group is left
        if kept:
            shared = torch.tensor(advantages, dtype=torch.float32).to(self._device)
            figures |= self._backward(shared, len(sound), scores)
            norm = self._optimizers.clip(self.shared.norm)
        return figures | self._step(norm, scores)

    def sound(self, rollouts: Sequence[Rollout], advantages: Sequence[float], scores: BatchScores) -> list[Rollout]:
        """The rollouts that `update` trains on: those of groups without a number that is not finite."""
        groups = {rollouts[index].group for index in broken_rollouts(rollouts, advantages, scores.current)}
        return [rollout for rollout in rollouts if rollout.group not in groups]

    @property
    def optimized(self) -> OptimizedParameters:
        """The parameters of each optimizer."""
        return [[p for group in part.param_groups for p in group["params"]] for part in self._optimizers.parts]

    def _batches(self, rollouts: Sequence[Rollout], rows: Sequence[Row]) -> list[RolloutBatch]:
        """This rank's micro-batches, or its parts of those that ranks share; of a split model every rank has as many."""
        found = rollout_batches(rollouts, self._batch_tokens, rows)
        if self._split:
            found += [empty_batch()] * (max(self.ranks.gather(len(found))) - len(found))
        if self.shared.context.ranks > 1:
            found = [rollout_part(batch, self.shared.context) for batch in found]
        return [batch.to(self._device) for batch in found]

    def _without_broken_groups(
        self, rollouts: Sequence[Rollout], advantages: Sequence[float], scores: BatchScores
    ) -> tuple[Sequence[Rollout], Sequence[float], BatchScores] | None:
        """What is left to train on, None if nothing is. The names of broken rollouts go to `broken`. The rest is scored once more: numbers of the
        left-out rollouts are in the sums of the pass before, and 0 * NaN is NaN."""
        found = broken_rollouts(rollouts, advantages, scores.current)
        self.broken = broken_lines(rollouts, found)
        if not found:
            return rollouts, advantages, scores
        groups = {rollouts[index].group for index in found}
        left = [index for index, rollout in enumerate(rollouts) if rollout.group not in groups]
        scores.graphs.clear()
        scores.batches.clear()
        if not left:
            return None
        sound = [rollouts[index] for index in left]
        return sound, [advantages[index] for index in left], self.score(sound, with_reference=False)

    def _step(self, norm: float, scores: BatchScores) -> dict[str, float]:
        """Moves the weights if the gradient is finite. Raises TrainingDiverged after too many steps in a row that did not."""
        self.steps += 1
        self._optimizers.set_factor(policy_lr_factor(self.settings, self.steps, self.total_steps))
        if not math.isfinite(norm):
            self._optimizers.zero_grad()
            self._bad_in_a_row += 1
            if self._bad_in_a_row >= self.settings.bad_steps_limit:
                last = f"; the last: {self.broken[0]}" if self.broken else ""
                raise TrainingDiverged(f"{self._bad_in_a_row} policy steps in a row without a finite gradient{last}")
            return {"grad_norm": norm, "skipped": 1.0}
        self._bad_in_a_row = 0
        self._optimizers.step()
        self._optimizers.zero_grad()
        self._balance(scores.load)
        return {"grad_norm": norm, "skipped": 0.0}

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed trainer needs, as tensors and plain values (see `checkpoint.save_state`)."""
        return {
            "model": trained_state(self.model),
            "optimizers": self._optimizers.state_dict(),
            "steps": self.steps,
            "bad_in_a_row": self._bad_in_a_row,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        load_trained_state(self.model, state["model"])
        self._optimizers.load_state_dict(state["optimizers"])
        self.steps = state["steps"]
        self._bad_in_a_row = state["bad_in_a_row"]

    def _forward(
        self, model: CausalLM, rollouts: RolloutBatch, *, replay: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Logprobs (M,) and entropies (M,) of the sampled tokens, and the routes taken."""
        out = model(
            rollouts.ids,
            rollouts.mask,
            forced_experts=rollouts.routes if replay and self.settings.router_replay is not False else None,
            return_routes=bool(self._routers),
            logits_at=torch.zeros_like(rollouts.ids, dtype=torch.bool),  # the head runs below, at sampled tokens only
        )
        hidden = out.hidden[0].index_select(0, rollouts.parents)  # (M, H)
        logprobs, entropy = logprobs_and_entropy(hidden, rollouts.targets, model.head, self.settings.temperature)
        return logprobs, entropy, out.routes

    @torch.no_grad()
    def _plain(self, model: CausalLM, batches: list[RolloutBatch]) -> Tensor:
        """Logprobs (M,) by experts of the model's own choice; so the reference chooses, for the recorded ones are the policy's."""
        return flat([self._forward(model, batch, replay=False)[0] for batch in batches])

    def _of_reference(self, batches: list[RolloutBatch]) -> Tensor | None:
        if self.reference is None or self.reference is not self.model:
            return None if self.reference is None else self._plain(self.reference, batches)
        with adapters_off(self.model):
            return self._plain(self.model, batches)

    def _compares(self, rollouts: Sequence[Rollout]) -> bool:
        """Whether this step's batch is scored without replay too; all ranks come to the same."""
        every, replays = self.settings.unreplayed_every, self.settings.router_replay is not False
        if not every or self.steps % every or not replays or not self._routers:
            return False
        return any(segment.routes is not None for rollout in rollouts for segment in rollout.segments)

    def _backward(self, advantages: Tensor, rollouts: int, scores: BatchScores) -> dict[str, float]:
        kept, statistics, taught = bool(scores.graphs), ImportanceStatistics(), False
        with replaying(self.model, self.settings.replay_ratio):
            for i, batch in enumerate(scores.batches):
                logprobs = scores.graphs[i] if kept else self._forward(self.model, batch, replay=True)[0]
                owned = advantages[batch.owner]
                weights = importance_weights(logprobs, batch.sampler_logprobs, owned, self.settings.trust)
                statistics.add(weights, logprobs, batch.sampler_logprobs)
                coefficients = policy_coefficients(owned, weights, rollouts, self.settings.loss_tokens)
                teaches = bool(coefficients.any())  # a batch of groups without spread does not
                if teaches or self._split:
                    (coefficients * logprobs).sum().backward()
                taught |= teaches
        scores.graphs.clear()
        scores.batches.clear()
        if not self._split:
            sum_gradients(self._optimizers.params, self.ranks)
        elif not any(self.ranks.gather(taught)):
            self._optimizers.zero_grad()  # they have no gradient, instead of one of zeros, which Adam's moments would count
        return ImportanceStatistics.merged(self.ranks.gather((statistics.tokens, statistics.sums))).figures()

    def _figures(self, rollouts: Sequence[Rollout], scores: BatchScores) -> dict[str, float]:
        lags = self._tokens_by_lag(rollouts)
        figures: dict[str, float] = {
            "k3": scores.mismatch.k3,
            "p99_abs_dlogp": scores.mismatch.p99,
            "entropy": scores.entropy,
            "replayed_routes": scores.replay.replayed,
            "replaced_routes": scores.replay.replaced,
            "expert_agreement": scores.replay.agreement,
            "sampled_tokens": sum(lags.values()),
            "forwarded_tokens": scores.forwarded,
            "held_tokens": sum(len(segment) for rollout in rollouts for segment in rollout.segments),
        }
        if (plain := scores.mismatch_unreplayed) is not None:
            figures |= {"k3_unreplayed": plain.k3, "p99_abs_dlogp_unreplayed": plain.p99}
        if self.ranks.size > 1:
            figures["rank_imbalance"] = scores.imbalance
        return figures | {f"tokens_lag_{lag}": float(count) for lag, count in sorted(lags.items())}

    def _tokens_by_lag(self, rollouts: Sequence[Rollout]) -> Counter[int]:
        """Sampled tokens by how many versions of the weights ago they were sampled."""
        counts: Counter[int] = Counter()
        for rollout in rollouts:
            for segment in rollout.segments:
                counts.update((self.steps - segment.versions[segment.sampled]).tolist())
        return counts

    @torch.no_grad()
    def _balance(self, load: Tensor | None) -> None:
        if load is None or self._adapted:  # an adapter holds no router
            return
        for router, layer_load in zip(self._routers, load, strict=True):
            if router.bias is not None:
                router.bias.copy_(
                    balanced_bias(router.bias, layer_load.to(self._device), self.settings.router_bias_rate)
                )


def broken_rollouts(
    rollouts: Sequence[Rollout], advantages: Sequence[float], current: Sequence[Sequence[np.ndarray]]
) -> dict[int, str]:
    """By index of the rollout what is broken. The trainer leaves its whole group out: the other members are compared with a mean that includes
    the broken rollout's reward. Broken means: its advantage (NaN or infinite), a logprob of the sampler or of the trainer (NaN or +inf), or a
    token to which both give probability 0, which has no ratio. Importance weights handle a probability of 0 by one of them.

    `current` are the trainer's logprobs (T_i,) by rollout and segment.
    """
    found: dict[int, str] = {}
    for index, (rollout, advantage, logprobs) in enumerate(zip(rollouts, advantages, current, strict=True)):
        if not math.isfinite(advantage):
            found[index] = f"its advantage is {advantage}"
            continue
        for segment, now in zip(rollout.segments, logprobs, strict=True):
            for whose, values in (("sampler", segment.logprobs), ("trainer", now)):
                sampled = values[segment.sampled]
                odd = sampled[np.isnan(sampled) | (sampled == np.inf)]
                if len(odd):
                    found[index] = f"{len(odd)} of its tokens have a logprob of {odd[0]} by the {whose}"
            impossible = np.isneginf(segment.logprobs) & np.isneginf(now) & segment.sampled
            if impossible.any():
                found[index] = f"{impossible.sum()} of its tokens have a logprob of -inf by the sampler and the trainer"
    return found


def broken_lines(rollouts: Sequence[Rollout], broken: dict[int, str]) -> list[str]:
    """A line for each broken rollout: its name, its task, what is not finite and what follows."""
    return [
        f"rollout {rollouts[index].id} (task {rollouts[index].task_id}): {why}; its group {rollouts[index].group} is left out of the step"
        for index, why in sorted(broken.items())
    ]
