"""Is anything decorative? Counts what the machinery of asynchronous RL really did, next to what the project asks of it."""

from __future__ import annotations

from typing import Any

from etude.evaluate.report.table import bar, cell, table

# What the project asks of the laptop recipe, so that no part of it is there for show.
SUMMARIZED_PERCENT = 5.0
SWAPS_PER_ROLLOUT = 1 / 3
K3, P99 = 1e-9, 1e-5
NO_EXPERTS = "the engine tells no experts"


def shares(report: dict[str, Any]) -> dict[str, float]:
    """The counts of a report as shares, `rl.shares` in report.json; what the run did not count is left out."""
    counts = report["rl"]["counts"]
    rollouts, sessions = counts.get("rollouts", 0), report.get("sft", {}).get("sessions", 0)
    found = {
        "summarized_percent": (100.0, counts.get("summarized"), rollouts),
        "swapped_in_flight_percent": (100.0, counts.get("swapped_in_flight"), rollouts),
        "in_flight_swaps_per_rollout": (1.0, counts.get("in_flight_swaps"), rollouts),
        "summarized_demonstrations_percent": (100.0, report.get("sft", {}).get("summarized"), sessions),
    }
    return {name: round(unit * part / of, 3) for name, (unit, part, of) in found.items() if part is not None and of}


def machinery(report: dict[str, Any]) -> str:
    """Counts with their shares and bars, then the promises about exactness."""
    rl = report["rl"]
    counts, share = rl.get("counts", {}), rl.get("shares", {})
    cut, swaps = share.get("summarized_percent"), share.get("in_flight_swaps_per_rollout")
    rows: list[list[str]] = []

    def add(key: str, words: str, part: str = "", asked: str = "") -> None:
        if key in counts:
            rows.append([words, cell(counts[key]), part, asked])

    add("rollouts", "rollouts, attempts in sandboxes")
    add(
        "summarized",
        "rollouts cut by a self-summary",
        _percent(cut),
        bar(f"at least {SUMMARIZED_PERCENT:g}%", (cut or 0) >= SUMMARIZED_PERCENT),
    )
    add("segments", "segments trained on")
    rows += _self_summaries(counts)
    add(
        "swapped_in_flight",
        "rollouts that saw weights change in flight",
        _percent(share.get("swapped_in_flight_percent")),
    )
    add(
        "in_flight_swaps",
        "weight swaps met in flight",
        "" if swaps is None else f"{swaps:.2f} a rollout",
        bar("at least 1 in 3 rollouts", (swaps or 0) >= SWAPS_PER_ROLLOUT),
    )
    add("sampled_tokens", "tokens sampled and trained on")
    rows += _replayed(rl)
    add("replaced_routes", "of them replaced by the trainer's own as implausible")
    add("retried", "attempts repeated after infra faults, never scored")
    rows += _solvable(rl)
    rows += _versions(counts)
    drawn = table(["what the machinery did", "count", "share", "asked for"], rows)
    return drawn + table(["exactness", "measured", "asked for"], _exactness(rl))


def _replayed(rl: dict[str, Any]) -> list[list[str]]:
    """Expert choices that the trainer took from the engine, where they are counted."""
    names = {
        "replayed_tokens": "tokens whose experts the trainer replayed",
        "replayed_routes": "expert choices replayed (tokens x layers)",
    }
    counts = {key: count for key, count in rl.get("counts", {}).items() if key in names}
    shown = _experts_reported(rl)
    return [
        [words, cell(counts[key]), "", bar("more than 0", counts[key] > 0) if shown else NO_EXPERTS]
        for key, words in names.items()
        if key in counts
    ]


def _solvable(rl: dict[str, Any]) -> list[list[str]]:
    """The share of tasks that the start solves, with its interval, where it was measured."""
    if not (found := rl.get("solvable")):
        return []
    low, high = (100 * bound for bound in found["interval"])
    solved = f"{100 * found['share']:.0f}% ({low:.0f} to {high:.0f})"
    return [[f"tasks that the start solves in {found['attempts']} attempts, of", cell(found["tasks"]), solved, ""]]


def _versions(counts: dict[str, Any]) -> list[list[str]]:
    """How many policy versions sampled tokens, where any did."""
    versions = sum(1 for tokens in counts.get("tokens_by_version", {}).values() if tokens)
    return [["policy versions with tokens", cell(versions), "", bar("more than 1", versions > 1)]] if versions else []


def _self_summaries(counts: dict[str, Any]) -> list[list[str]]:
    """How many were written, how long, and how many the sessions had to go on from that say nothing or not all."""
    if (written := counts.get("summaries")) is None:
        return []
    tokens, broken = counts["summary_tokens"], counts["broken_summaries"]
    return [
        ["self-summaries, trained on with their rollout's advantage", cell(written), "", ""],
        ["tokens of theirs", cell(tokens), f"{tokens / written:.0f} each" if written else "", ""],
        ["of them empty, malformed or cut off", cell(broken), _percent(100 * broken / written) if written else "", ""],
    ]


def _exactness(rl: dict[str, Any]) -> list[list[str]]:
    mismatch, drift, delta = rl.get("mismatch", {}), rl.get("drift", {}), rl.get("delta", {})
    rows = [
        ["staleness at training, versions: oldest, mean", _pair(rl.get("staleness", {}), "max", "mean"), ""],
        ["fixed probe, sampler against trainer: mean k3", _one(mismatch, "k3"), _at_most(mismatch, "k3", K3)],
        ["fixed probe: p99 of |dlogp|", _one(mismatch, "p99"), _at_most(mismatch, "p99", P99)],
        ["fixed probe: equal experts", *_equal_experts(rl)],
        ["training batches as they come: mean k3, p99", _pair(drift, "k3", "p99"), _left_out(drift)],
        [
            "batches scored both ways, p99 of |dlogp|: experts replayed, not",
            _pair(rl.get("replay", {}), "p99", "p99_unreplayed"),
            "",
        ],
        ["weight delta: share of the full weights, bytes", _pair(delta, "ratio", "bytes"), ""],
    ]
    return [row for row in rows if row[1]]


def _left_out(drift: dict[str, Any]) -> str:
    count = int(drift.get("steps_without", 0))
    return f"without {count} step{'' if count == 1 else 's'} whose figures are not finite" if count else ""


def _experts_reported(rl: dict[str, Any]) -> bool:
    return rl.get("mismatch", {}).get("routes") != 0


def _equal_experts(rl: dict[str, Any]) -> tuple[str, str]:
    mismatch = rl.get("mismatch", {})
    if not _experts_reported(rl):
        return NO_EXPERTS, ""
    return _one(mismatch, "routes_equal"), bar("yes", bool(mismatch.get("routes_equal")))


def _one(found: dict[str, Any], key: str) -> str:
    return cell(found[key]) if key in found else ""


def _pair(found: dict[str, Any], first: str, second: str) -> str:
    return ", ".join(cell(found[key]) for key in (first, second) if key in found)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}%"


def _at_most(found: dict[str, Any], key: str, most: float) -> str:
    return bar(f"at most {most:.0e}", key in found and found[key] <= most)
