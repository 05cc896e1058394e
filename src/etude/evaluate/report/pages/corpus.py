"""What the run learnt from: where it came from, under which licences, what was dropped and why, and how long the texts are."""

from __future__ import annotations

from typing import Any

from etude.evaluate.report.charts import chart
from etude.evaluate.report.composition import pie, rows, stacked_bars
from etude.evaluate.report.knowledge import PHASES
from etude.evaluate.report.plot import PlotLine, line_chart
from etude.evaluate.report.table import cell, table

CLUSTER_BOUNDS = (
    2,
    3,
    4,
    8,
    16,
    64,
)  # first size of each bucket of near copies; beyond a handful only the scale matters


def corpus(report: dict[str, Any]) -> list[str]:
    """Charts and the table of shards; nothing where the run has no shards by source."""
    found = report.get("corpus", {})
    if "shards" not in found:
        return []
    return [lead(found), '<div class="charts">' + "".join(charts(report)) + "</div>", shards(found["shards"])]


def lead(found: dict[str, Any]) -> str:
    """The corpus in two sentences."""
    tokens = sum(shard["tokens"] for shard in found["shards"].values())
    heldout = sum(shard["heldout_tokens"] for shard in found["shards"].values())
    words = f"{tokens:,} tokens to learn from and {heldout:,} held out, measured with a vocabulary of {found['vocabulary']:,}."
    if library := found.get("library"):
        kept = sum(source["kept_bytes"] for source in library["sources"].values())
        raw = sum(source["raw_bytes"] for source in library["sources"].values())
        projects = sum(source["projects"] for source in library["sources"].values())
        words += (
            f" The library kept {kept / 1e6:,.1f} MB of {raw / 1e6:,.1f} MB in {projects:,} projects; "
            f"{library['heldout_projects']:,} of them are held out whole, {library['left_out']['projects']:,} were left out."
        )
    return f"<p>{words}</p>"


def charts(report: dict[str, Any]) -> list[str]:
    """In the order of the way a text goes: in, judged, licensed, redacted, compared, cut into documents."""
    found = report["corpus"]
    library = found.get("library") or {}  # none where the recipe names no source
    copies = library.get("copies") or {}
    return [
        chart("What each phase reads", stacked_bars(mixes(report)), "Shares of tokens; available: what the shards hold."),
        chart("Licences", pie(library.get("licences", {})), "Files by licence family, before near copies are dropped."),
        chart("Why files were dropped", rows(library.get("refused", {})), "Files by the first reason that refused them."),
        chart(
            "Why projects were left out",
            rows(library.get("left_out", {}).get("reasons", {})),
            "Whole projects: not reachable, refused by fingerprint, not readable.",
        ),
        chart("Why documents were dropped", rows(found.get("refused", {}))),
        chart("Secrets and personal data replaced", rows(library.get("redactions", {})), "Placeholders by kind."),
        chart("Near copies", rows(clusters(copies.get("sizes", {})), ordered=True), _copies(copies)),
        chart(
            "Length of documents",
            lengths(found.get("lengths", {})),
            "Documents of each form by length; a point marks its bucket's upper end.",
        ),
    ]  # fmt: skip


def mixes(report: dict[str, Any]) -> dict[str, dict[str, float]]:
    """What each phase says that it read, and, to compare, what there was."""
    read = {phase: report[phase]["mix"] for phase in PHASES if report.get(phase, {}).get("mix")}
    return read | {"available": {name: shard["tokens"] for name, shard in report["corpus"]["shards"].items()}}


def clusters(sizes: dict[str, int]) -> dict[str, int]:
    """Clusters of near copies by bucket of size, from {size: clusters}: `2`, `3`, `4-7` …"""
    found: dict[str, int] = {}
    for place, low in enumerate(CLUSTER_BOUNDS):
        high = CLUSTER_BOUNDS[place + 1] if place + 1 < len(CLUSTER_BOUNDS) else None
        inside = sum(count for size, count in sizes.items() if int(size) >= low and (high is None or int(size) < high))
        name = f"{low} or more" if high is None else str(low) if high == low + 1 else f"{low} to {high - 1}"
        if inside:
            found[f"{name} alike"] = inside
    return found


def lengths(found: dict[str, list[list[float]]]) -> str:
    """A curve a form: the share of its documents in each bucket of tokens."""
    lines = []
    for form, buckets in found.items():
        total = sum(count for _, count in buckets)
        if total:
            lines.append(PlotLine(form, [upper for upper, _ in buckets], [100 * count / total for _, count in buckets]))
    return line_chart(lines, x_title="tokens (log scale)", y_title="% of documents", log_x=True, y_zero=True)


def shards(found: dict[str, dict[str, int]]) -> str:
    """What there is, by source and form."""
    rows = [
        [
            name,
            cell(shard["documents"]),
            cell(shard["tokens"]),
            f"{shard['bytes'] / max(1, shard['tokens']):.2f}",
            cell(shard["heldout_documents"]),
            cell(shard["heldout_tokens"]),
        ]
        for name, shard in found.items()
    ]
    head = ["source and form", "documents", "tokens", "bytes a token", "held-out documents", "held-out tokens"]
    return table(head, rows)


def _copies(copies: dict[str, Any]) -> str:
    if not copies:
        return ""
    return f"Clusters by size: {copies['texts']:,} texts, {copies['kept']:,} of them kept, {copies['clusters']:,} clusters."
