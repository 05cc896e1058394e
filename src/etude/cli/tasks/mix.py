"""`etude tasks mix --sessions DIR --out FILE`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json


def mix(
    sessions: Annotated[
        list[Path], typer.Option("--sessions", metavar="DIR", help="Sessions, ours or other agents' logs; repeatable.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The weights: a .toml or .json file.")],
    tasks: Annotated[
        Path | None, typer.Option("--tasks", metavar="DIR", help="Print the shares of a draw over these tasks too.")
    ] = None,
    json: Json = False,
) -> Answer:
    """Count what people asked for in real sessions by category, by rules that the file names session by session, and write the weights
    that tasks are drawn by."""
    from dataclasses import asdict

    from etude.tasks.mix.classify import classify, written_files
    from etude.tasks.mix.weights import build_mix as mixed
    from etude.tasks.mix.weights import category_shares, read_weights, write_mix
    from etude.tasks.recorded.session import read_recorded
    from etude.tasks.store.opened import open_tasks

    found, left_out = read_recorded(sessions)
    document = mixed({one.id: classify(one.request, written_files(one.entries)) for one in found}, left_out)
    write_mix(out, document)
    lines = _text_lines(document)
    if tasks is not None:
        draw = category_shares(open_tasks(tasks).rows.values(), read_weights(out))
        document = {**document, "draw": asdict(draw)}
        lines += ["", *(f"{name:<14}{100 * share:5.1f}% of a draw" for name, share in draw.shares.items())]
        lines += [
            f"{name}: no task, {100 * share:.1f}% goes to the others" for name, share in draw.without_tasks.items()
        ]
        lines += [f"{name}: {count} tasks, not weighed and not drawn" for name, count in draw.unknown.items()]
    return Answer({"file": str(out), **document}, "\n".join([*lines, f"written to {out}"]))


def _text_lines(document: dict[str, Any]) -> list[str]:
    lines = [
        f"{document['decided']} of {document['sessions']} sessions decided, {len(document['left_out'])} files left out"
    ]
    for name, row in document["categories"].items():
        span = f"{100 * row['low']:.1f} to {100 * row['high']:.1f}"
        lines.append(f"{name:<14}{row['count']:>6}  {100 * row['share']:5.1f}% ({span})  weight {row['weight']:.3f}")
    return [*lines, *(f"  {count:>5}  {rule}" for rule, count in document["rules"].items())]
