"""Current rates of the stages at work, from a run's latest events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# Figures of a stage's last step that a person watches, in the order in which they are shown.
WATCHED = (
    "pass_rate", "reward", "rollouts", "sampled_tokens", "tokens_per_s", "mean_loss", "loss", "tokens", "tokens_per_core_s",
    "mean", "average", "dollars", "faults",
)  # fmt: skip
SUMMED = {"rollouts": "attempts_per_hour", "sampled_tokens": "tokens_per_hour"}


def stage_rates(events: Iterable[dict[str, Any]], started: Mapping[str, float]) -> dict[str, Any]:
    """By stage that is at work: steps done, their rate, time left, the last figures. `started`: by stage, when its attempt began."""
    from etude.core.events.picture import Picture

    picture, metrics = Picture(), dict[str, list[dict[str, Any]]]()
    for event in events:
        if event["time"] >= started.get(event["stage"], float("inf")):
            picture.add(event)
            if event["kind"] == "metric" and isinstance(event.get("values"), dict):
                metrics.setdefault(event["stage"], []).append(event)
    found = {}
    for name, stage in picture.stages.items():
        values = {key: stage.values[key] for key in WATCHED if key in stage.values}
        per_minute = None
        if stage.first and stage.last and stage.last[0] > stage.first[0]:
            per_minute = 60 * (stage.last[1] - stage.first[1]) / (stage.last[0] - stage.first[0])
        found[name] = {
            "done": stage.done, "total": stage.total, "phase": stage.phase, "steps_per_minute": per_minute,
            "seconds_left": stage.seconds_left, "values": values, **_hourly(metrics.get(name, [])),
        }  # fmt: skip
    return found


def _hourly(metrics: list[dict[str, Any]]) -> dict[str, float]:
    """What the steps after the first one add, by hour between the first and the last."""
    spent_s = metrics[-1]["time"] - metrics[0]["time"] if len(metrics) > 1 else 0.0
    if spent_s <= 0:
        return {}
    sums = {name: sum(_number(event["values"].get(key)) for event in metrics[1:]) for key, name in SUMMED.items()}
    return {name: 3600 * value / spent_s for name, value in sums.items() if value}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def rate_lines(rates: Mapping[str, Any]) -> list[str]:
    """A line for each stage at work."""
    return [f"  {name}: {', '.join(_parts(row))}" for name, row in rates.items()]


def _parts(row: dict[str, Any]) -> list[str]:
    from etude.core.events.picture import duration, figure

    parts = [row["phase"]] if row["phase"] else []
    parts += [f"{row['done']}/{row['total']} steps"] if row["total"] else []
    parts += [f"{figure(row['steps_per_minute'])} steps a minute"] if row["steps_per_minute"] else []
    parts += [f"{row[name]:,.0f} {name.partition('_')[0]} an hour" for name in SUMMED.values() if name in row]
    parts += [f"{name} {figure(value)}" for name, value in row["values"].items()]
    left = row["seconds_left"]
    return parts + ([f"about {duration(left)} left"] if left is not None and row["done"] < row["total"] else [])
