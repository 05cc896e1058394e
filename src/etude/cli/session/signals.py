"""`etude session signals`: opt-in, local signals of what sessions were worth."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.session.places import Home, at_home


def signals(
    on: Annotated[bool | None, typer.Option("--on/--off", help="Start or stop collecting.")] = None,
    home: Home = None,
    json: Json = False,
) -> Answer:
    """Measure what is due and sum up. Nothing is collected until --on; nothing ever leaves this machine."""
    from etude.agent.git_links.signals import SignalStore

    store = SignalStore(at_home(home))
    if on is not None:
        store.turn(on)
    fresh = store.collect(time.time())
    rows = store.rows()
    document = {"on": store.on, "file": str(store.file), "measured_now": len(fresh), "rows": len(rows), **_sums(rows)}
    state = "on" if store.on else "off (etude session signals --on starts it)"
    lines = [f"signals are {state}; {len(rows)} in {store.file}, {len(fresh)} measured now"]
    lines += [
        f"lines kept at {m}: {f['share']:.0%} of {f['lines']} in {f['sessions']} sessions"
        for m, f in document["kept"].items()
    ]
    lines += (
        [f"follow-ups: {', '.join(f'{n} {c}' for n, c in document['follow_ups'].items())}"]
        if document["follow_ups"]
        else []
    )
    if (latency := document["latency_s"]) is not None:
        lines.append(f"latency: median {latency:.1f} s from a message to the answer")
    lines.append(
        f"rejected: {document['edits_undone']} of {document['edits']} edits undone, {document['calls_denied']} calls denied"
    )
    return Answer(document, "\n".join(lines))


def _sums(rows: list[dict[str, Any]]) -> dict[str, Any]:
    kept: dict[str, dict[str, float]] = defaultdict(lambda: {"lines": 0, "kept": 0, "sessions": 0})
    for row in rows:
        if row["kind"] == "kept":
            found = kept[row["moment"]]
            found["lines"] += row["lines"]
            found["kept"] += row["kept"]
            found["sessions"] += 1
    waits = sorted(row["all_s"] for row in rows if row["kind"] == "latency")
    rejected = [row for row in rows if row["kind"] == "rejected"]
    return {
        "kept": {moment: {**found, "share": found["kept"] / found["lines"]} for moment, found in kept.items()},
        "follow_ups": dict(Counter(row["class"] for row in rows if row["kind"] == "follow_up").most_common()),
        "latency_s": waits[len(waits) // 2] if waits else None,
        **{name: sum(row[name] for row in rejected) for name in ("edits", "edits_undone", "calls_denied")},
    }
