"""A region behind a long thin link, lost for ten minutes: `python benchmarks/regions.py --folder DIR [--outage 600]`. As root; a quarter of an hour.

A real RL run from the committed SFT checkpoint on a Ray cluster of two nodes, each in a network namespace of its own; between them 120 ms
of round trip, 200 Mbit/s and 1% loss each way (netem where the kernel has it, else `regional/pump.py`). The run publishes into a bucket of a real
S3 server at home, a relay copies that into a bucket of another one in the region, and the region's engine sees no weights but those. Once
it answers turns the link is cut, without a word to anybody, and mended after the outage. The run is ended when the region is back
and every group that had been admitted by then is trained. Writes `benchmarks/results/regions.json`; ends with 1 if a bar was missed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regional import outcome
from regional.link import DELAY_MS, LOSS, MBIT
from regional.site import REPOSITORY, Site, two_regions

from etude.pipeline.run.machine import machine
from etude.rl.steps import read

RESULTS = Path(__file__).resolve().parent / "results" / "regions.json"
CHECKPOINT = REPOSITORY / "checkpoints" / "sft-nano"
SETTINGS: dict[str, Any] = {
    "steps": 4000,  # more than there is time for: the run is ended
    "groups_per_step": 8,
    "group_size": 8,
    "slots": 96,
    "save_every": 20,
    "solvable_tasks": 0,
    "keep_sessions": 0,
    "max_staleness": 4,
    "region_lag": 2,
    "region_patience_s": 30,
    "engine_silence_s": 60,
    "max_faults": 1000,
    "attempt": {"tool_latency_s": 2.0},  # steps then take seconds, as with real tools
}
HARNESS = {"max_turns": 8, "max_tokens_per_turn": 48}
WARM_TURNS, WARM_STEPS, AFTER_S = 200, 10, 60
LIMIT_S = 600.0


class Course:
    """The run, and what is seen of it."""

    def __init__(self, site: Site, process: Any) -> None:
        self.site, self.process, self.folder = site, process, site.folder / "rl"

    def until(self, what: str, condition: Callable[[], bool], limit_s: float = LIMIT_S) -> float:
        """Seconds that it took. Raises RuntimeError when the run ends, or nothing comes."""
        began = time.monotonic()
        while not condition():
            if self.process.poll() is not None or time.monotonic() - began > limit_s:
                raise RuntimeError(f"waited for {what}: {self.site.log('run')[-3000:]} {self.notes()[-5:]}")
            time.sleep(0.25)
        return time.monotonic() - began

    def value(self, name: str) -> float:
        steps = read(self.folder / "steps.jsonl") if (self.folder / "steps.jsonl").exists() else []
        return steps[-1].values.get(name, 0.0) if steps else 0.0

    def step(self) -> int:
        return len(outcome.groups(outcome.entries(self.folder), "trained")) // SETTINGS["groups_per_step"]

    def notes(self) -> list[str]:
        path = self.folder / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [event["text"] for line in lines if '"note"' in line and (event := json.loads(line))["kind"] == "note"]

    def times_back(self) -> int:
        return sum("is back" in note for note in self.notes())

    def region_version(self) -> int:
        return int(self.step() - self.value("region_far_behind"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="for all that the run writes; is to be new")
    parser.add_argument("--outage", type=float, default=600.0, help="seconds")
    parser.add_argument("--json", type=Path, default=RESULTS)
    given = parser.parse_args()
    with two_regions(given.folder.resolve()) as site:
        document = measured(site, given.outage)
    document |= {"machine": machine(), "load_at_end": os.getloadavg()[1]}
    given.json.write_text(json.dumps(document, indent=1) + "\n")
    print(given.json.read_text())
    sys.exit(not all(document["bars"].values()))


@dataclass(frozen=True)
class Seen:
    """What was seen from outside, at the moments that count. Versions are steps trained; times are from the mending on."""

    first_answers_s: float
    at_cut: int
    held: int  # the region's version then
    link_before: dict[str, int]
    crossed_before: dict[str, Any]
    at_mend: int
    admitted: set[int]  # groups until then
    mended_at_s: float  # by the clock on the wall
    back_s: float
    when_back: int
    at_end: int


def measured(site: Site, outage_s: float) -> dict[str, Any]:
    say = lambda text: print(time.strftime("%T"), text, flush=True)
    course = Course(site, site.start_run(CHECKPOINT, SETTINGS, HARNESS))
    warm = lambda: course.value("region_far_turns") > WARM_TURNS and course.step() >= WARM_STEPS
    first_s = course.until("the region to answer", warm)
    at_cut, held, turns = course.step(), course.region_version(), course.value("region_far_turns")
    before = site.link.passed(), outcome.crossed(site.relayed())
    say(f"cut at version {at_cut}; the region has {held}; {turns:g} turns were answered there")
    site.link.cut()
    time.sleep(outage_s)
    at_mend, admitted = course.step(), outcome.groups(outcome.entries(course.folder), "admitted")
    back, turns, mended_at_s = course.times_back(), course.value("region_far_turns"), time.time()
    say(f"mended at version {at_mend}")
    site.link.mend()
    back_s = course.until("the region to be back", lambda: course.times_back() > back)
    when_back = course.step()
    say(f"back after {back_s:.0f} s, at version {when_back}")
    course.until("turns there", lambda: course.value("region_far_turns") > turns)
    time.sleep(AFTER_S)
    trained = lambda: outcome.groups(outcome.entries(course.folder), "trained")
    course.until("what was admitted to be trained", lambda: admitted <= trained())
    seen = Seen(first_s, at_cut, held, *before, at_mend, admitted, mended_at_s, back_s, when_back, course.step())
    course.process.send_signal(signal.SIGINT)
    course.process.wait(120)
    document = summarise(site, course, seen) | {"outage_s": outage_s}
    return document | {"bars": bars(document)}


def summarise(site: Site, course: Course, seen: Seen) -> dict[str, Any]:
    events, steps = site.relayed(), read(course.folder / "steps.jsonl")
    level = (e["time"] - seen.mended_at_s for e in events if e["event"] == "copied" and e["version"] == e["newest"])
    return {
        "link": {"round_trip_ms": 2 * DELAY_MS, "mbit_s": MBIT, "loss_each_way": LOSS, "by": "netem" if site.link.netem else "pump.py"},
        "settings": SETTINGS,
        "region_first_answers_s": round(seen.first_answers_s, 1),
        "versions": {"at_cut": seen.at_cut, "region_held": seen.held, "at_mend": seen.at_mend, "when_back": seen.when_back, "at_end": seen.at_end},
        "missed_versions": seen.at_mend - seen.held,
        "relay_level_s": next((round(after_s, 1) for after_s in level if after_s > 0), None),
        "region_back_s": round(seen.back_s, 1),
        "steps": {
            "before": outcome.paces(steps, 2, seen.at_cut),
            "during": outcome.paces(steps, seen.at_cut, seen.at_mend),
            "after": outcome.paces(steps, seen.when_back, seen.at_end),
        },
        "staleness": outcome.staleness(course.folder),
        "samples": outcome.samples(course.folder, seen.admitted, SETTINGS["group_size"]),
        "crossed": outcome.crossed(events),
        "link_bytes_before_cut": seen.link_before,
        "store_bytes_on_the_link_per_shard_byte": per_shard_byte(seen.link_before, seen.crossed_before),
        "notes": course.notes(),
    }  # fmt: skip


def per_shard_byte(link: dict[str, int], relay: dict[str, Any]) -> float | None:
    """Headers, indexes, manifests and packets sent again among them; None where netem counts no ports."""
    return round(link["store_bytes"] / relay["shard_bytes"], 4) if "store_bytes" in link else None


def bars(document: dict[str, Any]) -> dict[str, bool]:
    share = document["store_bytes_on_the_link_per_shard_byte"]
    return {
        "no sample lost": document["samples"]["lost_rollouts"] == 0 and document["samples"]["trained_twice"] == 0,
        "staleness bound": document["staleness"]["max"] <= SETTINGS["max_staleness"],
        "each shard once": document["crossed"]["copied_twice"] == 0 and (share is None or share < 1.1),
        "region back": document["steps"]["after"]["region_turns"] > 0,
    }


if __name__ == "__main__":
    main()
