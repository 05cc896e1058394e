"""A run whose knowledge phase is done, in the shapes that its stages leave."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SHARD = {"heldout_documents": 40, "heldout_tokens": 9_000, "heldout_bytes": 31_000}
LIBRARY = {
    "sources": {
        "stdlib": {"projects": 190, "texts": 900, "raw_bytes": 31_000_000, "kept_bytes": 9_000_000},
        "installed": {"projects": 14, "texts": 700, "raw_bytes": 22_000_000, "kept_bytes": 6_000_000},
    },
    "files": {"python": 1500, "markdown": 100},
    "bytes": {"python": 14_000_000, "markdown": 1_000_000},
    "licences": {"PSF-2.0": 900, "MIT": 420, "BSD-3-Clause": 210, "Apache-2.0": 66, "none <found>": 4},
    "refused": {
        "binary by name": 5100, "generated: says so in its first lines": 41, "over max_bytes": 1200, "vendored": 80,
        "a data file above 64 kB": 12,
    },
    "redactions": {"email": 210, "name": 140, "aws key": 2, "home folder": 17},
    "left_out": {f"pypi/p{n}@1": "fingerprint of a suite" if n % 2 else "not reachable" for n in range(7)},
    "heldout_projects": [f"p{n}" for n in range(12)],
    "copies": {"texts": 1600, "kept": 1480, "clusters": 70, "sizes": {"2": 50, "3": 11, "5": 4, "9": 3, "70": 1, "130": 1}},
}  # fmt: skip
CORPUS = {
    "vocabulary": 768,
    "shards": {
        "stdlib.files": {"documents": 900, "tokens": 2_400_000, "bytes": 6_700_000} | SHARD,
        "stdlib.projects": {"documents": 190, "tokens": 2_300_000, "bytes": 6_600_000} | SHARD,
        "installed.files": {"documents": 700, "tokens": 1_800_000, "bytes": 4_900_000} | SHARD,
        "installed.changes": {"documents": 60, "tokens": 90_000, "bytes": 250_000} | SHARD,
        "stdlib.lookups": {"documents": 300, "tokens": 280_000, "bytes": 760_000} | SHARD,
        "exercises.files": {"documents": 12_000, "tokens": 1_100_000, "bytes": 3_400_000} | SHARD,
    },
    "library": LIBRARY,
    "refused": {"over a row": 3},
    "lengths": {
        "files": [[64, 300], [128, 900], [256, 4000], [512, 2600], [1024, 700], [2048, 200], [4096, 60]],
        "projects": [[512, 20], [1024, 40], [2048, 70], [4096, 90], [8192, 60]],
    },
}
SAMPLES = [
    {"text": f"def f{n}(x):\n    return '</pre><script>alert({n})</script>'\n", "source": "stdlib", "project": "json",
     "version": "3.11", "path": f"json/tool{n}.py", "language": "python", "licence": "PSF-2.0", "form": "files"}
    for n in range(6)
]  # fmt: skip


def _phase(steps: int, bits: float, mix: dict[str, float]) -> dict:
    watched = [[step, bits + 0.4 / (1 + step / 20)] for step in range(0, steps + 1, max(1, steps // 6))]
    return {
        "steps": steps, "tokens": steps * 2000, "loss": bits, "heldout_bits_per_byte": bits * 0.8, "mix": mix,
        "regression": watched, "stopped": "",
    }  # fmt: skip


def _probes() -> dict:
    bits = {"base": 2.31, "short": 2.12, "long": 2.06}
    edges = [0, 64, 128, 256, 512, 1024]
    rows = {
        phase: [[a, b, v * 1.2 - 0.1 * n + (0.5 if phase != "long" and a >= 256 else 0), v - 0.1, v * 1.4]
                for n, (a, b) in enumerate(zip(edges, edges[1:], strict=False))]
        for phase, v in bits.items()
    }  # fmt: skip
    questions = {
        phase: [
            {"kind": kind, "length": length, "depth": depth, "questions": 60, "ci95": [0.2, 0.9], "chance": 0.25,
             "accuracy": min(1.0, gain * (0.9 if length <= 256 else 0.5 if phase != "long" else 0.8) + 0.05 * depth)}
            for kind in ("definition", "test") for length in (64, 128, 256, 512, 1024) for depth in (0.0, 0.5, 1.0)
        ]
        for phase, gain in (("base", 0.8), ("short", 0.85), ("long", 0.95))
    }  # fmt: skip
    return {
        "perplexity": {
            phase: {"bits_per_byte": v, "ci95": [v - 0.06, v + 0.06], "nats": 1e5 * v, "perplexity": 2.718**v,
                    "tokens": 90_000, "window": 256, "stride": 128, "files": 120}
            for phase, v in bits.items()
        },
        "perplexity_paired": {
            "short_minus_base": {"bits_per_byte": -0.19, "ci95": [-0.21, -0.17]},
            "long_minus_short": {"bits_per_byte": -0.06, "ci95": [-0.13, 0.01]},
        },
        "by_position": rows,
        "retrieval": questions | {"old_length": 256},
        "mtp": {
            "acceptance": {"greedy": [0.81, 0.66, 0.55], "sampled": [0.74, 0.58, 0.47]},
            "by_position": [[0, 64, 0.7], [64, 256, 0.78], [256, 1024, 0.83]],
            "speedup": {"batch": {"1": 1.41, "2": 1.3, "4": 1.12, "8": 0.98}, "draft_tokens": 3, "identical": True},
            "parameters": 234_496,
        },
    }  # fmt: skip


def _events() -> list[dict]:
    found = []
    for stage, start, end, steps in (("base", 6.6, 2.4, 350), ("short", 2.5, 2.1, 350), ("long", 2.3, 2.0, 60)):
        for step in range(10, steps + 1, 10):
            done = step / steps
            values = {
                "loss": start + (end - start) * done**0.3,
                "lr_factor": min(1.0, 10 * done) * (1.05 - done),
                "grad_norm": 1.2,
            }
            found.append((stage, step, values | ({"draft_loss": 0.4} if stage == "long" else {})))
    found += [("mtp", step, {"loss": 4.0 / step**0.5}) for step in range(10, 151, 10)]
    found.append(("short", 120, {"loss": 30.0, "lr_factor": 0.9, "skipped": 1.0}))
    return [{"kind": "metric", "stage": s, "step": n, "values": values} for s, n, values in found]


@pytest.fixture
def knowledge_run(tmp_path: Path) -> Path:
    """A run directory with all that the report's new pages read."""
    return write_knowledge_run(tmp_path)


def write_knowledge_run(folder: Path) -> Path:
    """Fills `folder`."""
    (folder / "recipe.toml").write_text('[run]\nname = "laptop"\n')
    mix = {"stdlib.files": 0.3, "installed.files": 0.2, "exercises.files": 0.5}
    contents = {
        "corpus/summary.json": CORPUS,
        "corpus/samples.json": SAMPLES,
        "base/summary.json": _phase(350, 2.4, mix),
        "short/summary.json": _phase(350, 2.1, mix | {"installed.changes": 0.1}),
        "long/summary.json": _phase(60, 2.0, {"stdlib.projects": 0.5, "stdlib.lookups": 0.25, "exercises.files": 0.25}),
        "mtp/summary.json": {"steps": 150, "tokens": 300_000, "loss": 0.5},
        "probes/summary.json": _probes(),
    }
    for name, data in contents.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(data))
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in _events()))
    return folder


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def make_run() -> Callable[..., Path]:
    """`board_run.make_run`: a run as RL leaves it."""
    return _load(Path(__file__).with_name("board_run.py")).make_run


@pytest.fixture(scope="session")
def chromium() -> ModuleType:
    """The browser's driver; a test that needs it is skipped where there is no browser."""
    module = _load(Path(__file__).parents[3] / "benchmarks" / "chromium.py")
    if module.found() is None:
        pytest.skip(f"no headless browser: none of {', '.join(module.NAMES)} is on PATH")
    return module
