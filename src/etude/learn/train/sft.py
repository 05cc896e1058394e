"""Supervised fine-tuning on sessions: the policy's own tokens count fully, what tools printed counts a little.

A small weight on tool output teaches the model the world it acts in (and copying) at no extra cost: those tokens run
through the network anyway.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from etude.core.events.log import EventLog
from etude.core.trace.segment import Segment
from etude.learn.model.causal_lm import CausalLM
from etude.learn.train.learnable import fit_segments, learnable
from etude.learn.train.loop import TrainingResult
from etude.learn.train.pretrain import learner_of
from etude.learn.train.settings import SftSettings
from etude.learn.train.sources import DialogueSource, token_weights
from etude.learn.train.stage import train_stage

STAGE = "sft"


def run_sft(
    settings: SftSettings,
    model: CausalLM,
    segments: Iterable[Segment],
    out: Path,
    log: EventLog,
    stage: str = STAGE,
    draft_every: int = 1,
) -> TrainingResult:
    """Trains `model` in place, or the adapters that `settings.lora` adds to it.

    Resumes from `out`. Raises SessionTooLong before the first step, OtherData where a resumed run is given other
    segments.

    Draft layers, if it has any, learn on one batch in `draft_every`.
    """
    say = lambda line: log.note(stage, line)
    short = fit_segments(list(segments), model.config.context_length, settings.too_long, say)
    held, idle = learnable(short, lambda s: token_weights(s, settings.observation_weight, settings.prompt_weight))
    if not held:
        raise ValueError("SFT got no segment with a sampled token to learn from; collect sessions first")
    if idle:
        say(f"{idle:,} segments hold no token to learn from and are left out")
    log.note(stage, f"{len(held):,} segments, {sum(map(len, held)):,} tokens")
    learner = learner_of(model, settings.router_bias_rate, draft_every, settings.lora)
    source = DialogueSource(
        held,
        batch_tokens=settings.batch_tokens,
        observation_weight=settings.observation_weight,
        prompt_weight=settings.prompt_weight,
        epochs=settings.epochs,
        seed=settings.seed,
        share=not model.config.mtp_layers,  # draft layers learn from rows
    )
    if source.prefix:
        say(
            f"all begin with the same {source.prefix:,} tokens: each step computes them once, and sft.batch_tokens counts what follows"
        )
    return train_stage(stage, STAGE, settings, model, model, source, learner, out, log)
