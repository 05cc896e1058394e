"""Which shard folders a phase reads, and the share of its tokens that each gives: arithmetic on names, free of torch.

Folders are named `<source>.<form>`. Of a phase's tokens `replay` are drawn as the phase before draws its own, `changes` and
`lookups` come from the folders of those forms, and what is left from the phase's own form. Inside each part the sources have
their weights: the phase's `mix`, else the corpus' weights, else 1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from etude.learn.train.settings import PhaseSettings


class NoDocuments(Exception):
    """The corpus holds nothing of what a phase asks for; the message names both."""


@dataclass(frozen=True)
class CorpusMix:
    """`shares` sum to 1, by folder; `missing` says what the phase asks for and the corpus lacks, whose share the rest took."""

    shares: dict[str, float]
    missing: tuple[str, ...]


def mix_of(phases: Sequence[PhaseSettings], folders: Collection[str], weights: Mapping[str, float]) -> CorpusMix:
    """The mix of the last of `phases`, which are those up to it in order. Raises NoDocuments."""
    phase, before = phases[-1], phases[:-1]
    if phase.replay and not before:
        raise NoDocuments(f"replay={phase.replay}, but no phase precedes this one: set it to 0")
    parts: list[tuple[float, Mapping[str, float]]] = []
    missing = [
        f"source {name} has no {phase.form}" for name in sorted(phase.mix) if f"{name}.{phase.form}" not in folders
    ]
    for form, share in (("changes", phase.changes), ("lookups", phase.lookups)):
        found = _weighted(form, folders, weights)
        if share and found:
            parts.append((share, found))
        elif share:
            missing.append(f"no source has {form}")
    if phase.replay:
        parts.append((phase.replay, mix_of(before, folders, weights).shares))
    own = _weighted(phase.form, folders, phase.mix or weights, only=phase.mix or None)
    if not own:
        raise NoDocuments(
            f"the corpus has no documents of form {phase.form}"
            + (f" of {', '.join(sorted(phase.mix))} (mix)" if phase.mix else "")
            + f"; it has {', '.join(sorted(folders)) or 'nothing'}"
        )
    parts.append((1 - phase.changes - phase.lookups - phase.replay, own))
    return CorpusMix(_added(parts), tuple(missing))


def _weighted(
    form: str, folders: Collection[str], weights: Mapping[str, float], only: Collection[str] | None = None
) -> dict[str, float]:
    """Weight of every folder of that form."""
    sources = [name.rpartition(".")[0] for name in sorted(folders) if name.rpartition(".")[2] == form]
    return {f"{s}.{form}": weights.get(s, 1.0) for s in sources if (only is None or s in only) and weights.get(s, 1.0)}


def _added(parts: Sequence[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for part, weights in parts:
        whole = sum(weights.values())
        for name, weight in weights.items():
            shares[name] = shares.get(name, 0.0) + part * weight / whole
    total = sum(shares.values())
    return {name: share / total for name, share in sorted(shares.items())}
