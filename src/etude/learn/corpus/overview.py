"""What a library holds, in figures: from the manifest's lines and the copies found; no text is read."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from etude.learn.corpus.build import COPIES, SETTINGS
from etude.learn.corpus.dedup.clusters import Clusters
from etude.learn.corpus.manifest import entries
from etude.learn.corpus.quota import OVER
from etude.learn.corpus.split import held_out

SUMMED = ("licences", "refused", "redactions")


def overview(folder: Path) -> dict[str, Any]:
    """Raises FileNotFoundError where nothing was built, ManifestBroken where the chain does not hold."""
    path = folder / "manifest.jsonl"
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} holds no library (manifest.jsonl is missing); run `etude corpus build` first"
        )
    share = json.loads((folder / SETTINGS).read_text())["heldout_share"]
    sums: dict[str, Counter[str]] = {name: Counter() for name in SUMMED}
    files: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    sources: dict[str, Counter[str]] = {}
    left_out: dict[str, str] = {}
    over: Counter[str] = Counter()
    heldout: set[str] = set()
    for line in entries(path):
        for name, counts in sums.items():
            counts.update(line[name])
        files.update({language: count for language, (count, _) in line["kept"].items()})
        kept.update({language: size for language, (_, size) in line["kept"].items()})
        sources.setdefault(line["source"], Counter()).update(_of_project(line))
        if line["reason"] == OVER:
            over[line["source"]] += 1
        elif line["reason"]:
            left_out[line["id"]] = line["reason"]
        elif held_out(line["project"], share):
            heldout.add(line["project"])
    return {
        "sources": {name: dict(counts) for name, counts in sources.items()},
        "files": dict(files.most_common()),
        "bytes": dict(kept.most_common()),
        **{name: dict(counts.most_common()) for name, counts in sums.items()},
        "left_out": left_out,
        "over_max_bytes": dict(over),
        "heldout_projects": sorted(heldout),
        "copies": _copies(folder / COPIES),
    }


def _of_project(line: dict[str, Any]) -> dict[str, int]:
    size = sum(size for _, size in line["kept"].values())
    read = int(not line["reason"])
    return {"projects": read, "texts": line["records"], "raw_bytes": line["raw_bytes"], "kept_bytes": size}


def _copies(path: Path) -> dict[str, Any] | None:
    """None while the build is not finished."""
    if not path.is_file():
        return None
    clusters = Clusters.load(path)
    sizes = clusters.sizes()
    return {
        "texts": len(clusters),
        "kept": sum(sizes.values()),
        "clusters": sum(count for size, count in sizes.items() if size > 1),
        "sizes": {str(size): count for size, count in sizes.items() if size > 1},
    }
