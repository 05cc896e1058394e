"""Assertions on the ci recipe's report.json: the agent learned, and nothing in the machinery was decorative.

Usage: python .ci/check_report.py REPORT. Prints every check with its figure; exits 1 if one fails.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# (key path, smallest accepted value, whether the bound itself is accepted, why)
CHECKS: list[tuple[str, float, bool, str]] = [
    ("lift.avg_points", 15.0, True, "RL lifts the held-out average by 15 points or more"),
    ("lift.ci95.0", 0.0, False, "the lower 95% bound of the lift is above zero"),
    ("rl.steps", 1, True, "RL took steps"),
    ("rl.counts.summarized", 0, False, "self-summaries cut sessions into segments"),
    ("rl.counts.segments", 0, False, "segments were trained on"),
    ("rl.counts.swapped_in_flight", 0, False, "rollouts saw weights change in flight"),
    ("rl.counts.in_flight_swaps", 0, False, "weights were swapped while rollouts were in flight"),
    ("rl.counts.replayed_tokens", 0, False, "the trainer replayed sampled tokens"),
    ("rl.counts.replayed_routes", 0, False, "the trainer replayed the engine's expert choices"),
    ("rl.shares.summarized_percent", 0, False, "a share of the sessions was summarized"),
    ("rl.shares.in_flight_swaps_per_rollout", 0, False, "swaps in flight are told by rollout"),
    ("rl.delta.bytes", 0, False, "weights travelled as deltas"),
    ("bench.sft.avg", 0.0, False, "the SFT checkpoint was measured"),
    ("bench.rl.avg", 0.0, False, "the RL checkpoint was measured"),
    ("bench.sft.avg_equal", 0.0, False, "and by equal levels"),
    ("bench.rl.avg_equal", 0.0, False, "and by equal levels"),
    ("bench.expert.avg", 0.0, False, "the scripted expert was measured"),
    ("overlap.training_bodies", 0, False, "the overlap of held-out with training bodies was computed"),
    ("corpus.library.copies.texts", 0, False, "the corpus is a library"),
    ("perplexity.base.tokens", 0, False, "perplexity was measured on held-out projects"),
    ("retrieval.old_length", 0, False, "lookups were asked"),
    ("mtp.acceptance.overlap.0", 0, False, "drafts were measured"),
]
# An agent that does nothing, and one that cheats, must get nothing: else the grader is what learned.
# And what is held out must be that: no function body of it in training, none where settings are chosen.
ZEROES = [
    "bench.nop.avg",
    "bench.cheat.avg",
    "overlap.seen_share",
    "overlap.validation_share",
    "overlap.heldout.function_overlap",
    "overlap.heldout.template_overlap",
    "overlap.heldout_in_validation",
]
# What must not be exceeded: the sampler's logprobs are the trainer's, and admission bounds staleness.
LIMITS: list[tuple[str, float, str]] = [
    ("rl.mismatch.k3", 1e-9, "trainer and sampler agree on the fixed probe (mean k3)"),
    ("rl.mismatch.p99", 1e-5, "and so does p99 of |dlogp|"),
    ("perplexity.paired.short_minus_base.bits_per_byte", 0.0, "perplexity falls in the short phase"),
    ("perplexity.paired.long_minus_short.bits_per_byte", 0.0, "and in the long one"),
]
# What the report must say in words: (key path, what is accepted or None for any text, why).
WORDS: list[tuple[str, set[str] | None, str]] = [
    ("split", {"heldout"}, "figures are reported from held-out tasks"),
    ("overlap.statement", None, "the overlap is stated"),
    ("sandbox.backend", None, "the sandbox back end is named"),
    ("discovery.verdict", {"discovery", "sharpening, no discovery"}, "discovery is judged"),
]


def lookup(report: Any, path: str) -> Any:
    """The value at a dotted path (a number indexes a list); raises KeyError naming the whole path."""
    value = report
    for part in path.split("."):
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, TypeError, ValueError):
            raise KeyError(f"report.json has no {path!r} (stopped at {part!r})") from None
    return value


def failures(report: Any) -> list[str]:
    """One line for each check that does not hold; prints each check as it goes."""
    wrong: list[str] = []

    def check(path: str, holds: Any, why: str) -> None:
        try:
            value = lookup(report, path)
            good = holds(value)
        except (KeyError, TypeError) as error:
            value, good = str(error), False
        line = f"{path} = {str(value)[:200]}: {why}"
        print(("ok    " if good else "WRONG ") + line)
        if not good:
            wrong.append(line)

    check("schema", lambda v: v == 1, "the schema this script knows")
    for path, bound, inclusive, why in CHECKS:
        check(path, lambda v, b=bound, i=inclusive: v > b or (i and v == b), why)
    for path, most, why in LIMITS:
        check(path, lambda v, m=most: v <= m, why)
    check("mtp.speedup.identical", lambda v: v is True, "decoding with drafts gives the tokens of decoding without")
    check("rl.mismatch.routes_equal", lambda v: v is True, "the trainer's experts are the engine's on the fixed probe")
    check(
        "rl.staleness.max",
        lambda v: v <= lookup(report, "recipe.rl.max_staleness"),
        "no token was staler than the recipe allows",
    )
    for path in ZEROES:
        check(path, lambda v: v == 0, "must be exactly 0")
    for path, accepted, why in WORDS:
        check(path, lambda v, a=accepted: isinstance(v, str) and v != "" and (a is None or v in a), why)
    check("rl.counts.tokens_by_version", lambda v: sum(n > 0 for n in v.values()) > 1, "tokens of several versions")
    check("over_controls", lambda v: len(v) > 0 and all("avg_points_equal" in e for e in v.values()), "RL is compared")
    return wrong


def main() -> int:
    """Check the report named on the command line."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    wrong = failures(json.loads(Path(sys.argv[1]).read_text()))
    print(f"{len(wrong)} of the report's checks failed" if wrong else "the report holds")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
