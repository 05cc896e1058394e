"""The comparison as one document: what `--json` gives, and what table and page are drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.core import bounded_toml
from etude.core.events.finite import read_file
from etude.evaluate.report.charts import Curves
from etude.evaluate.report.collect import metrics
from etude.evaluate.report.compare import figures
from etude.evaluate.report.compare.sessions import SessionPair, pairs, read
from etude.evaluate.report.query.tables import check_run
from etude.evaluate.report.rows.lines import flat

# How the settings of two runs differ: keys of recipe, conditions and versions whose values differ.


ABSENT = "not set"
SOURCES = ("recipe", "conditions", "machine")


def recipe_rows(run: Path) -> dict[str, dict[str, Any]]:
    """By source, the flat keys of the run's settings and of where it ran."""
    recipe = run / "recipe.toml"
    return {
        "recipe": flat(bounded_toml.loads(recipe.read_text())) if recipe.is_file() else {},
        "conditions": flat(_json(run / "conditions.json")),
        "machine": flat(_json(run / "machine.json")),
    }


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Keys that differ, in order: key, a, b. A key that one side lacks is marked as missing."""
    keys = dict.fromkeys([*a, *b])
    rows = [{"key": key, "a": a.get(key, ABSENT), "b": b.get(key, ABSENT)} for key in keys]
    return [row for row in rows if row["a"] != row["b"] or type(row["a"]) is not type(row["b"])]


def all_differences(a: Path, b: Path) -> dict[str, list[dict[str, Any]]]:
    """By source; one that is equal on both sides is left out."""
    ours, theirs = recipe_rows(a), recipe_rows(b)
    found = {source: differences(ours[source], theirs[source]) for source in SOURCES}
    return {source: rows for source, rows in found.items() if rows}


def _json(path: Path) -> dict[str, Any]:
    return read_file(path) if path.is_file() else {}


SCHEMA = 1
# Curves that are drawn open, by stage; "" holds for stages that learn from text.
MAIN = {
    "rl": ("reward", "pass_rate", "entropy", "drift_k3", "staleness_mean", "sampled_tokens", "turns", "uniform_groups", "grad_norm"),
    "": ("loss", "mean_loss", "regression_bits_per_byte", "grad_norm"),
}  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """Everything that was found; `a` and `b` are what the two are called."""

    a: str
    b: str
    different: dict[str, list[dict[str, Any]]]
    figures: list[dict[str, Any]]
    curves_a: Curves
    curves_b: Curves
    session_pairs: list[SessionPair]
    shared_tasks: int  # of which sessions were kept on both sides

    def to_json(self) -> dict[str, Any]:
        shared = {
            s: sorted(self.curves_a[s].keys() & self.curves_b[s].keys()) for s in self.curves_a if s in self.curves_b
        }
        return {
            "schema": SCHEMA,
            "a": self.a,
            "b": self.b,
            "different": self.different,
            "figures": self.figures,
            "curves": shared,
            "sessions": {"shared_tasks": self.shared_tasks, "shown": [pair.to_json() for pair in self.session_pairs]},
        }


def compare(a: Path, b: Path, *, tasks: int) -> Comparison:
    """Reads both runs; sessions of at most `tasks` tasks are set side by side. Raises NoRun, SessionError."""
    for run in (a, b):
        check_run(run)
    curves_a, curves_b = metrics(a), metrics(b)
    shared = pairs(a, b)
    return Comparison(
        *names(a, b),
        all_differences(a, b),
        [
            *figures.of_bench(a, b),
            *figures.of_rollouts(a, b),
            *figures.of_curves(curves_a, curves_b, {stage: main(stage) for stage in curves_a}),
            *figures.of_stages(a, b),
        ],
        curves_a,
        curves_b,
        [read(a, b, pair) for pair in shared[:tasks]],
        len(shared),
    )


def main(stage: str) -> tuple[str, ...]:
    """The figures of a stage that a reader wants first."""
    return MAIN.get(stage, MAIN[""])


def names(a: Path, b: Path) -> tuple[str, str]:
    """The folders' own names, or as much of their paths as tells them apart."""
    one, other = a.resolve().parts, b.resolve().parts
    for count in range(1, max(len(one), len(other)) + 1):
        short = "/".join(one[-count:]), "/".join(other[-count:])
        if short[0] != short[1]:
            return short
    return "/".join(one), "/".join(other)  # a run against itself
