"""Which finished groups are not trained, by choice: another task takes the place of one that would teach little.

A group whose outcomes are all the same has no advantage but from effort and manners. Where all failed that teaches a policy to fail with less
effort; where all succeeded it teaches to succeed with less, which the length penalty is there for. Peers filter both out and refill (DAPO, arXiv
2503.14476); what the Composer 2 report does it does not say. The default trains everything, as the report's loss needs no filter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from etude.core.trace.segment import Rollout
from etude.rl.settings import SetAside

SetAsideRule = Callable[[Sequence[Rollout]], bool]


def set_aside_rule(choice: SetAside) -> SetAsideRule:
    """Says of a group's rollouts whether the group is set aside."""
    return {"none": _none, "failed": _failed, "uniform": _uniform}[choice]


def _none(group: Sequence[Rollout]) -> bool:
    return False


def _failed(group: Sequence[Rollout]) -> bool:
    return all(rollout.rewards["outcome"] == 0.0 for rollout in group)


def _uniform(group: Sequence[Rollout]) -> bool:
    return len({rollout.rewards["outcome"] for rollout in group}) == 1
