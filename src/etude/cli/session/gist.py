"""What a session was, in a line: length, policy versions, and what it was worth."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etude.core.trace.entry import Entry
    from etude.core.trace.session import Session

_WORTH = ("score", "reason", "step", "reward", "components", "advantage")


def gist(session: Session) -> dict[str, Any]:
    """What a line of the list tells. `reward` is there once a training step used the session."""
    segments = session.segments()
    versions = sorted({int(v) for s in segments for v in s.versions[s.sampled]})
    verdicts = {key: value for entry in session.of("verdict") for key, value in entry.data.items()}
    return {
        "task_id": session.header.task_id,
        "turns": len(session.of("completion")),
        "segments": len(segments),
        "sampled_tokens": sum(int(s.sampled.sum()) for s in segments),
        "output_tokens": token_counts(session.of("completion"))["output_tokens"],
        "versions": versions,
        **{key: verdicts[key] for key in _WORTH if key in verdicts},
    }


def length_text(facts: dict[str, Any]) -> str:
    """Turns, tokens, segments and policy versions, as far as recorded. Of an endpoint's session only its own count of tokens is known."""
    tokens = facts["sampled_tokens"] or facts["output_tokens"]
    parts = [f"{facts['turns']} turns", f"{tokens} tokens"]
    if facts["segments"]:
        parts.append(f"{facts['segments']} segments")
    if facts["versions"] and facts["versions"] != [-1]:
        parts.append(versions_text(facts["versions"]))
    return ", ".join(parts)


def worth(facts: dict[str, Any]) -> str:
    """Score, reward and advantage, as far as known."""
    parts = [f"{key} {facts[key]:.3f}" for key in ("score", "reward", "advantage") if key in facts]
    return ", ".join(parts) or "not judged"


def versions_text(versions: list[int]) -> str:
    """The policy versions that sampled the session."""
    if not versions or versions == [-1]:
        return "no policy versions"
    return f"version {versions[0]}" if len(versions) == 1 else f"versions {versions[0]}-{versions[-1]}"


def tool_counts(entries: list[Entry]) -> dict[str, dict[str, int]]:
    """Calls answered and failed, by tool."""
    answered = Counter(e.data.get("name") or "malformed" for e in entries if e.type == "tool_result")
    failed = Counter(e.data.get("name") or "malformed" for e in entries if e.type == "tool_result" and e.data["failed"])
    return {name: {"calls": count, "failed": failed[name]} for name, count in answered.most_common()}


def token_counts(entries: list[Entry]) -> dict[str, int]:
    """Tokens as the policy reported them, over all turns."""
    usages = [entry.data.get("usage") or {} for entry in entries if entry.type == "completion"]
    names = ("input_tokens", "cached_tokens", "output_tokens")
    return {name: sum(usage.get(name, 0) for usage in usages) for name in names}
