"""How fast a library is built and what memory that takes: everything installed for this interpreter, one worker.

    python benchmarks/corpus_speed.py --out benchmarks/results/corpus_speed.json

Bytes looked at and bytes kept by core-second of the whole build (linking, judging, licences, redaction, signatures, compression, copies), so
the figure moves with the share of binaries among what is installed: the kept rate is the one for text.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from etude.core.events.log import EventLog
from etude.learn.corpus.build import LibraryBuilder
from etude.learn.corpus.overview import overview
from etude.learn.corpus.settings import CorpusSettings


def measure(folder: Path, packages: list[str]) -> dict[str, Any]:
    """One build from nothing."""
    source = {"kind": "installed", "packages": packages}
    settings = CorpusSettings.model_validate({"sources": {"installed": source}, "library": {"workers": 1}})
    before, began = os.times(), time.monotonic()
    LibraryBuilder(settings, folder, folder / "downloads", EventLog.null()).run()
    after, wall_s = os.times(), time.monotonic() - began
    core_s = sum(after[i] - before[i] for i in range(4))  # user and system, of this process and its children
    found = overview(folder)
    source = found["sources"]["installed"]
    return {
        "projects": source["projects"],
        "texts": source["texts"],
        "raw_bytes": source["raw_bytes"],
        "kept_bytes": source["kept_bytes"],
        "core_s": round(core_s, 1),
        "wall_s": round(wall_s, 1),
        "raw_mb_per_core_s": round(source["raw_bytes"] / 1e6 / core_s, 1),
        "kept_mb_per_core_s": round(source["kept_bytes"] / 1e6 / core_s, 1),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
        "without_copies": found["copies"]["kept"],
        "languages": dict(list(found["bytes"].items())[:5]),
        "refused": dict(list(found["refused"].items())[:8]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", nargs="*", default=[], help="these distributions alone")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/corpus_speed.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.out.parent) as folder:
        found = measure(Path(folder), options.packages)
    found = {"machine": {"cores": os.cpu_count(), "python": platform.python_version()}, **found}
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
