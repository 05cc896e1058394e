"""Rollouts to read: every token of a session as text, coloured by what the policy thought of it.

Three views share one markup: each sampled token carries its logprob, advantage and policy version as classes and
variables, and the page's three radio buttons choose which of the three colours it (pure CSS, see `page.css`).
"""

from __future__ import annotations

import math
from html import escape
from typing import Any

ROLES = ("<|system|>", "<|assistant|>", "<|tool|>")  # what starts a message, but for the first


def rollout_view(rollout: dict[str, Any], *, unfolded: bool = False) -> str:
    """One rollout, folded unless asked otherwise: a heading with its outcome, then its segments. Keys as `rl/samples.json` has them."""
    rewards = ", ".join(f"{name} {value:+.3f}" for name, value in rollout["rewards"].items())
    outcome = rollout["rewards"].get("outcome", 0.0)
    mark = "solved" if outcome >= 1 else "not solved"
    body = "".join(_segment(segment, rollout["advantage"]) for segment in rollout["segments"])
    return (
        f'<details class="rollout"{" open" if unfolded else ""}><summary><b class="{"good" if outcome >= 1 else "bad"}">{mark}</b> '
        f"{escape(rollout['task_id'])} · step {rollout['step']} · advantage {rollout['advantage']:+.3f} "
        f'<span class="muted">({escape(rewards)})</span></summary>{body}</details>'
    )


def _segment(segment: dict[str, Any], advantage: float) -> str:
    oldest = min((v for v in segment["versions"] if v >= 0), default=0)
    spans = [
        _token(text, sampled, logprob, version, oldest, advantage)
        for text, sampled, logprob, version in zip(
            segment["tokens"], segment["sampled"], segment["logprobs"], segment["versions"], strict=True
        )
    ]
    return f'<pre class="tokens">{"".join(spans)}</pre>'


def _token(text: str, sampled: bool, logprob: float, version: int, oldest: int, advantage: float) -> str:
    # Each message on a line of its own: the break is the page's, not a token.
    shown = ("<br>" if text in ROLES else "") + escape(text)
    if not sampled:
        return f'<span class="given">{shown}</span>'
    doubt = min(
        1.0, -logprob / 3.0
    )  # 3 nats (a 5% token) is already full colour: below that every choice was a surprise
    age = (version - oldest) % 4
    sign = "plus" if advantage > 0 else "minus" if advantage < 0 else "zero"
    strength = min(1.0, abs(advantage))
    tip = f"logprob {logprob:.3f} · p {100 * math.exp(logprob):.0f}% · version {version} · advantage {advantage:+.3f}"
    style = f"--doubt:{doubt:.2f};--strength:{strength:.2f}"
    return f'<span class="t v{age} {sign}" style="{style}" title="{tip}">{shown}</span>'
