"""The code index on 10,000 files of what is installed: how long it takes to build, to update and to ask, and whether it finds what was asked for.

    python benchmarks/index.py --out benchmarks/results/index.json

The question is a docstring's first paragraph, the answer the file that it was taken out of: the text that is indexed has `...` in its place. Rivals
see the same text: grep (the question's words of three letters and more without stop words, joined by "or", files ranked by the number of matches,
as `rg --count-matches -i -w` gives them) and BM25 over whole files, its words taken as they are or (the harder rival) split as the index splits them.
Constants were chosen on the docstrings of one half of the packages (--tune prints those figures); what is reported is the other half.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import dataclasses
import hashlib
import json
import math
import os
import platform
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from etude.agent.code_index.admission import admit
from etude.agent.code_index.client import IndexClient
from etude.agent.code_index.index import Index
from etude.agent.code_index.service import Service
from etude.agent.code_index.walk import walk
from etude.agent.code_index.words import terms

FILES = 10_000
QUESTIONS = 300  # in each half; a recall of 85% is then known to some 4 points
SPARE = 2  # candidates drawn for each: some stand in vendored copies too
FEWEST_WORDS = 6
WORD = re.compile(r"\w+")
STOP = frozenset(
    "the and for with that this from are was not its can has have will but all any one use used into when which you".split()
)


@dataclass(frozen=True)
class Asked:
    """`tuning`: constants may be chosen on it."""

    text: str
    path: str
    tuning: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument(
        "--corpus", type=Path, help="lay the files out here, or take those that an earlier run laid out"
    )
    parser.add_argument(
        "--tune", action="store_true", help="figures on the half that constants are chosen on; writes nothing"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/index.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        corpus = options.corpus or Path(scratch) / "corpus"
        if not (corpus / "questions.json").exists():
            lay_out(corpus, options.files)
        questions = [Asked(**entry) for entry in json.loads((corpus / "questions.json").read_text())]
        text = json.dumps(
            measure(corpus / "root", Path(scratch), [q for q in questions if q.tuning == options.tune]), indent=1
        )
    print(text)
    if not options.tune:
        options.out.write_text(text + "\n")


def measure(root: Path, scratch: Path, asked: Sequence[Asked]) -> dict[str, Any]:
    index = Index(root, scratch / "store")
    found: dict[str, Any] = {"machine": machine(), "corpus": size(root)}
    stages: dict[str, Callable[[], dict[str, Any]]] = {
        "build": lambda: build(index),
        "query": lambda: query_times(index, [q.text for q in asked], scratch / "socket"),
        "update": lambda: updates(index, root),
        "retrieval": lambda: retrieval(index, root, asked),
    }
    for name, stage in stages.items():
        print(f"{name} …", file=sys.stderr, flush=True)
        found[name] = stage()
        print(json.dumps(found[name]), file=sys.stderr, flush=True)
    return found


def machine() -> dict[str, Any]:
    return {"cores": os.cpu_count(), "python": platform.python_version(), "load_before": os.getloadavg()[0]}


def lay_out(corpus: Path, count: int) -> None:
    """Copies that many files to `corpus`/root, some of them without a docstring that then is a question."""
    texts = dict(installed(count))
    rng = random.Random(0)
    half: dict[bool, list[tuple[Asked, int, int]]] = {True: [], False: []}
    for path, text in texts.items():  # in the order of their hashes
        tuning = hashlib.sha256(path.split("/")[1].encode()).digest()[0] % 2 == 0
        if path.endswith(".py") and len(half[tuning]) < QUESTIONS * SPARE:
            own = [entry for entry in docstrings(text) if len(entry[0].split()) >= FEWEST_WORDS]
            half[tuning] += [
                (Asked(doc, path, tuning), begin, end) for doc, begin, end in rng.sample(own, min(len(own), 1))
            ]
    elsewhere = occurrences(texts.values(), {opening(asked.text) for drawn in half.values() for asked, _, _ in drawn})
    kept = [[entry for entry in drawn if elsewhere[opening(entry[0].text)] == 1][:QUESTIONS] for drawn in half.values()]
    for asked, begin, end in [entry for drawn in kept for entry in drawn]:
        source = texts[asked.path].encode()
        texts[asked.path] = (source[:begin] + b"..." + source[end:]).decode()
    for path, text in texts.items():
        (corpus / "root" / path).parent.mkdir(parents=True, exist_ok=True)
        (corpus / "root" / path).write_text(text)
    questions = [dataclasses.asdict(asked) for drawn in kept for asked, _, _ in drawn]
    (corpus / "questions.json").write_text(json.dumps(questions, indent=1))


def opening(text: str) -> str:
    """The first words, by which a docstring is known again in a vendored copy or a stub, however its lines are broken."""
    return " ".join(WORD.findall(text.lower())[:FEWEST_WORDS])


def occurrences(texts: Iterable[str], openings: set[str]) -> Counter[str]:
    """Counts the files that have each opening."""
    firsts = {opening.split(" ")[0] for opening in openings}
    found: Counter[str] = Counter()
    for text in texts:
        words = WORD.findall(text.lower())
        starts = [at for at, word in enumerate(words) if word in firsts]
        found.update({run for at in starts if (run := " ".join(words[at : at + FEWEST_WORDS])) in openings})
    return found


def installed(count: int) -> Iterator[tuple[str, str]]:
    """Files that are admitted, drawn by the hash of their paths, of site-packages and the standard library."""
    places = {"site": Path(sysconfig.get_paths()["purelib"]), "std": Path(sysconfig.get_paths()["stdlib"])}
    names = [(f"{name}/{path}", place / path) for name, place in places.items() for path in walk(place).files]
    names = [(name, file) for name, file in names if not name.startswith("std/site-packages/")]
    for name, file in sorted(names, key=lambda entry: hashlib.sha256(entry[0].encode()).digest()):
        raw = file.read_bytes()
        text, reason = admit(name, raw)
        if reason is None and text.encode() == raw and count:
            count -= 1
            yield name, text


def docstrings(text: str) -> list[tuple[str, int, int]]:
    """First paragraphs on one line, and the bytes of the whole literals."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    starts = [0]
    for line in text.encode().split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and (doc := ast.get_docstring(node)):
            literal = node.body[0]
            assert literal.end_lineno is not None and literal.end_col_offset is not None  # ast.parse sets them
            begin, end = (
                starts[literal.lineno - 1] + literal.col_offset,
                starts[literal.end_lineno - 1] + literal.end_col_offset,
            )
            found.append((" ".join(doc.split("\n\n")[0].split()), begin, end))
    return found


def size(root: Path) -> dict[str, int]:
    files = [file.stat().st_size for file in root.rglob("*") if file.is_file()]
    return {"files": len(files), "bytes": sum(files)}


def build(index: Index) -> dict[str, Any]:
    """From nothing, a worker a core. `core_s`: user and system time of the workers, which others' work on the machine stretches least."""
    report = index.update()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    stats = index.stats()
    return {
        "seconds": report.seconds,
        "core_s": round(children.ru_utime + children.ru_stime, 1),
        "files": report.files,
        "chunks": report.chunks,
        "files_per_s": round(report.files / report.seconds),
        "worker_peak_rss_mb": round(children.ru_maxrss / 1e3),
        "store_bytes": stats["store_bytes"],
        "segments": stats["segments"],
        "languages": dict(list(stats["languages"].items())[:6]),
        "load_after": os.getloadavg()[0],
    }


def updates(index: Index, root: Path) -> dict[str, Any]:
    """Medians of five: nothing changed, one file, a hundred. The files end as they were."""
    files = sorted(path for path in root.rglob("*.py"))
    before = {file: file.read_text() for file in random.Random(1).sample(files, 200)}
    rng = random.Random(2)

    def timed(changes: int) -> float:
        for file in rng.sample(sorted(before), changes):
            file.write_text(file.read_text() + "\n# changed\n")
        return index.update().seconds * 1e3

    timed(0)
    found = {
        f"{changes}_changed_ms": round(statistics.median(timed(changes) for _ in range(5))) for changes in (0, 1, 100)
    }
    for file, text in before.items():
        file.write_text(text)
    index.update()
    return found


def query_times(index: Index, questions: Sequence[str], socket: Path) -> dict[str, Any]:
    """Every question once, after a first one that opens the files; in process, through the service, and in an overlay of ten changed files."""
    began = time.perf_counter()
    index.search(questions[0])
    opening = time.perf_counter() - began
    overlay = index.overlay()
    overlay.put({f"new/f{n}.py": f"def added_{n}(value):\n    return value\n" for n in range(10)})
    overlay.search(questions[0])
    return {
        "first_ms": round(opening * 1e3),
        "in_process_ms": quantiles([clocked(lambda q=q: index.search(q)) for q in questions]),
        "overlay_ms": quantiles([clocked(lambda q=q: overlay.search(q)) for q in questions]),
        "service_ms": quantiles(asyncio.run(served(index, questions, socket))),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
    }


async def served(index: Index, questions: Sequence[str], socket: Path) -> list[float]:
    with Service(socket, [index]) as service:
        thread = threading.Thread(target=service.serve_forever, args=(0.05,))
        thread.start()
        client, times = IndexClient(socket), []
        for question in questions:
            began = time.perf_counter()
            await client.search(question)
            times.append((time.perf_counter() - began) * 1e3)
        await client.close()
        service.shutdown()
        thread.join()
    return times[1:]


def clocked(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


def quantiles(times: Sequence[float]) -> dict[str, float]:
    return {
        "p50": round(float(np.percentile(times, 50)), 2),
        "p95": round(float(np.percentile(times, 95)), 2),
        "n": len(times),
    }


Ranked = Sequence[str]  # paths, best first


def retrieval(index: Index, root: Path, asked: Sequence[Asked]) -> dict[str, Any]:
    files = {str(file.relative_to(root)): file.read_text() for file in sorted(root.rglob("*")) if file.is_file()}
    plain = WholeFiles(files, lambda text: Counter(WORD.findall(text.lower())), [q.text for q in asked])
    split = WholeFiles(files, terms, [q.text for q in asked])
    check_grep(root, plain, [q.text for q in asked[:3]])
    answers: dict[str, list[Ranked]] = {
        "grep": [
            plain.by_count([w for w in set(WORD.findall(q.text.lower())) if len(w) > 2 and w not in STOP])
            for q in asked
        ],
        "bm25_files": [plain.bm25(q.text) for q in asked],
        "bm25_files_split": [split.bm25(q.text) for q in asked],
        "index": [distinct([hit.path for hit in index.search(q.text, limit=40)])[:10] for q in asked],
        "index_ten_hits": [distinct([hit.path for hit in index.search(q.text, limit=10)]) for q in asked],
    }
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {"questions": len(asked)}
    ranks = {name: np.array([rank(r, q.path) for r, q in zip(a, asked, strict=True)]) for name, a in answers.items()}
    picks = rng.integers(0, len(asked), (2000, len(asked)))
    for name, places in ranks.items():
        hit = places < 10
        low, high = np.percentile(hit[picks].mean(1), [2.5, 97.5])
        found[name] = {
            "recall_at_10": round(float(hit.mean()), 4),
            "ci95": [round(float(low), 4), round(float(high), 4)],
            "recall_at_1": round(float((places < 1).mean()), 4),
            "mrr_at_10": round(float(np.where(hit, 1 / (places + 1), 0).mean()), 4),
        }
    for rival in ("grep", "bm25_files", "bm25_files_split"):
        gain = (ranks["index"] < 10).astype(float) - (ranks[rival] < 10)
        found[f"index_minus_{rival}_points_ci95"] = [
            round(float(x) * 100, 1) for x in np.percentile(gain[picks].mean(1), [2.5, 97.5])
        ]
    return found


def rank(ranked: Ranked, path: str) -> float:
    return ranked.index(path) if path in ranked else math.inf


def distinct(paths: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(paths))


class WholeFiles:
    """Counts of the questions' words in every file: what grep and a textbook's BM25 need."""

    def __init__(self, files: dict[str, str], words: Callable[[str], Counter[str]], questions: Sequence[str]) -> None:
        self.paths, self._words = list(files), words
        needed = {word for question in questions for word in words(question)}
        self.column = {word: n for n, word in enumerate(sorted(needed))}
        self.counts = np.zeros((len(files), len(self.column)), np.float32)  # (files, words)
        self.length = np.zeros(len(files))
        for row, text in enumerate(files.values()):
            found = words(text)
            self.length[row] = found.total()
            for word in found.keys() & needed:
                self.counts[row, self.column[word]] = found[word]

    def by_count(self, words: Sequence[str]) -> Ranked:
        return self._best(self.counts[:, [self.column[word] for word in words]].sum(1))

    def bm25(self, question: str, k1: float = 1.2, b: float = 0.75) -> Ranked:
        tf = self.counts[:, [self.column[word] for word in self._words(question)]]
        df = (tf > 0).sum(0)
        idf = np.log1p((len(tf) - df + 0.5) / (df + 0.5))
        norm = k1 * (1 - b + b * self.length / self.length.mean())
        return self._best((idf * tf * (k1 + 1) / (tf + norm[:, None])).sum(1))

    def _best(self, scores: np.ndarray) -> Ranked:
        return [self.paths[row] for row in np.lexsort((np.arange(len(scores)), -scores))[:10] if scores[row] > 0]


def check_grep(root: Path, plain: WholeFiles, questions: Sequence[str]) -> None:
    """The counts are ripgrep's, if it is there to be asked."""
    if shutil.which("rg") is None:
        return
    for question in questions:
        words = [w for w in set(WORD.findall(question.lower())) if len(w) > 2 and w not in STOP and w.isascii()]
        arguments = [part for word in words for part in ("-e", word)]
        command = ["rg", "--count-matches", "-i", "-w", "-F", "--no-ignore", "--hidden", "--null", *arguments, "."]
        out = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
        counts = {path.removeprefix("./"): int(n) for path, n in (line.split("\0") for line in out.splitlines())}
        best = sorted(counts, key=lambda path: (-counts[path], path))[:10]
        assert best == plain.by_count(words), (question, best, plain.by_count(words))


if __name__ == "__main__":
    main()
