"""Figures of one attempt in the index's words: from a rollout of RL, or from a session file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etude.core.trace.segment import Rollout, Segment
from etude.core.trace.session import Session

PHASES = {"all": "seconds", "create": "create_s", "policy": "policy_s", "tools": "tools_s", "grade": "grade_s"}
COUNTERS = {
    "turns": "turns",
    "calls": "calls",
    "failed_calls": "failed",
    "malformed_turns": "malformed",
    "broken_summaries": "broken",
}
TOOL = "calls_"  # what a counter of one tool's calls begins with


def of_rollout(rollout: Rollout) -> dict[str, Any]:
    """Of a stored rollout."""
    info = rollout.info
    return {
        **of_segments(rollout.segments),
        **of_counters(rollout.counters),
        **of_seconds(info.get("seconds", {})),
        "summaries": max(0, len(rollout.segments) - 1),
        "level": rollout.task_id.partition("/")[0],
        "outcome": rollout.rewards.get("outcome", float("nan")),
        "tries": int(info.get("tries", 1)),
        "host": str(info.get("host", "")),
        "began": int(info.get("began_unix_s", -1)),
        "faults": " ".join(info.get("faults", [])),
        "end": str(info.get("end", "")),
        "verdict": str(info.get("verdict", "")),
    }


def of_session(session: Session) -> dict[str, Any]:
    """Of a kept session; what it does not say is left out."""
    facts = session.header.recipe
    found: dict[str, Any] = of_segments(session.segments())
    found["level"] = str(facts.get("level") or session.header.task_id.partition("/")[0])
    found["tries"] = int(facts.get("tries", 1))
    found["began"] = int(session.header.created_unix_s) or -1
    for entry in session.of("counters"):
        found |= of_counters(entry.data["counters"]) | {"summaries": int(entry.data["counters"].get("summaries", 0))}
    for entry in session.of("end"):
        found |= of_seconds(entry.data.get("seconds", {})) | {"end": str(entry.data["reason"])}
    for entry in session.of("verdict"):
        data = entry.data
        found |= {"outcome": float(data["score"])} if "score" in data else {}
        found |= {name: float(data[name]) for name in ("reward", "advantage") if name in data}
        found |= {"verdict": str(data["reason"])} if "reason" in data else {}
    return found


def of_counters(counters: Mapping[str, float]) -> dict[str, Any]:
    """Turns and calls, and the tools called."""
    used = sorted(name.removeprefix(TOOL) for name, count in counters.items() if name.startswith(TOOL) and count)
    return {field: int(counters.get(name, 0)) for name, field in COUNTERS.items()} | {"tools": " ".join(used)}


def of_seconds(seconds: Mapping[str, float]) -> dict[str, float]:
    """Wall seconds by phase."""
    return {field: float(seconds[name]) for name, field in PHASES.items() if name in seconds}


def of_segments(segments: Sequence[Segment]) -> dict[str, Any]:
    """Tokens, how many were sampled, how surprised the policy was, and by which versions."""
    sampled = sum(int(segment.sampled.sum()) for segment in segments)
    doubt = -sum(float(segment.logprobs[segment.sampled].sum()) for segment in segments)
    drawn = [segment.versions[segment.sampled] for segment in segments if segment.sampled.any()]
    return {
        "tokens": sum(len(segment) for segment in segments),
        "sampled": sampled,
        "surprise": doubt / sampled if sampled else float("nan"),
        "oldest": min((int(versions.min()) for versions in drawn), default=-1),
        "newest": max((int(versions.max()) for versions in drawn), default=-1),
    }
