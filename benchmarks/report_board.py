"""The board with 10,000 rollouts of 2,000 tokens: how long until the first index is ready, a page opens, an attempt shows; what the browser holds.

    python benchmarks/report_board.py [--groups 1250] [--size 8] [--tokens 2000] [--repeats 5] [--json FILE]

Needs a headless Chromium on PATH. The run is synthetic (`tests/evaluate/report/board_run.py`), its files are those that RL writes. Times are
wall seconds. The machine may do other work, so the result has its load too. Memory is that of the tab's process.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chromium import Browser, Page, browser

from etude.evaluate.report.board.columns import FIELDS
from etude.evaluate.report.board.index import STORED, AttemptIndex
from etude.evaluate.report.board.server import Board, in_background
from etude.evaluate.report.write import write_page

HERE = Path(__file__).parent
READY = "document.body?.dataset.ready"
LISTED = f"{READY} && document.querySelectorAll('.list [role=option]').length > 5"

FILTER = """(() => {
  const box = document.querySelector('input[type=search]'), start = performance.now();
  box.value = 'failed tool:edit tokens>500';
  box.dispatchEvent(new Event('input'));
  return performance.now() - start;
})()"""


def maker() -> Callable[..., Path]:
    spec = importlib.util.spec_from_file_location(
        "board_run", HERE.parent / "tests" / "evaluate" / "report" / "board_run.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.make_run


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def opened(page: Page, url: str, condition: str) -> float:
    """Seconds from an empty tab to `condition`."""
    page.open("about:blank")
    page.wait("location.href === 'about:blank'")

    def work() -> None:
        page.open(url)
        page.wait(condition, 120)

    return timed(work)


def tab_memory(found: Browser) -> int:
    """Proportional set size of the largest renderer below the browser, bytes: what it would free by going."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (status := _read(entry / "stat")):
            children.setdefault(int(status.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    waiting, sizes = [found.process.pid], [0]
    while waiting:
        process = waiting.pop()
        waiting += children.get(process, [])
        if "--type=renderer" in _read(Path(f"/proc/{process}/cmdline")):
            lines = _read(Path(f"/proc/{process}/smaps_rollup")).splitlines()
            sizes += [1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")]
    return max(sizes)


def _read(path: Path) -> str:
    """Empty for a process that has just gone."""
    try:
        return path.read_text()
    except OSError:
        return ""


def heap(page: Page) -> int:
    page.call("HeapProfiler.collectGarbage")
    found = {entry["name"]: entry["value"] for entry in page.call("Performance.getMetrics")["metrics"]}
    return int(found["JSHeapUsedSize"])


def measure(run: Path, repeats: int) -> dict[str, Any]:
    index = AttemptIndex(run)
    figures: dict[str, Any] = {"first_index_s": round(timed(index.refresh), 2), "rollouts": len(index)}
    figures["index_bytes"] = (run / STORED).stat().st_size
    figures["fields"] = len(FIELDS)
    start = time.perf_counter()
    board = Board(run)
    thread = in_background(board)
    figures["restart_s"] = round(time.perf_counter() - start, 3)
    try:
        with browser() as found:
            page = found.page()
            page.size(1280, 900)
            figures |= measure_still(run, page, repeats)
            places = {
                "overview": READY,
                "rollouts": LISTED,
                "groups": f"{READY} && document.querySelector('.matrix canvas')",
            }
            for name, condition in places.items():
                times = [opened(page, f"{board.url}#/{name}", condition) for _ in range(repeats)]
                figures[f"open_{name}_s"] = {
                    "median": round(statistics.median(times), 3),
                    "worst": round(max(times), 3),
                }
            opened(page, f"{board.url}#/rollouts", LISTED)
            last = f"document.querySelector('#row-{figures['rollouts'] - 1}[aria-selected=true]')"
            figures["to_the_end_s"] = round(timed(lambda: (page.press("End"), page.wait(last))), 3)
            page.press("/")
            said = "document.querySelector('p[role=status]').textContent"
            before = page.run(said)
            figures["filter_ms"] = round(page.run(FILTER), 1)
            assert page.run(said) != before, "the filter changed nothing"
            attempt = "document.querySelector('.strip canvas')"
            times = []
            for row in range(repeats):
                work = lambda row=row: (
                    page.run(f"location.hash = '#/rollout/{row * 7}'"),
                    page.wait(f"{attempt} && location.hash.endsWith('/{row * 7}')"),
                )
                times.append(timed(work))
                page.run("location.hash = '#/fleet'")
                page.wait("document.querySelector('.bars-small')")
            figures["open_attempt_s"] = {"median": round(statistics.median(times), 3), "worst": round(max(times), 3)}
            page.run("location.hash = '#/rollouts'")
            page.wait(LISTED)
            figures["tab_pss_bytes"], figures["js_heap_bytes"] = tab_memory(found), heap(page)
            figures["script_errors"] = found.errors
    finally:
        board.close()
        thread.join()
    return figures


def measure_still(run: Path, page: Page, repeats: int) -> dict[str, Any]:
    """The same run as one file, with as many attempts in full as the settings give room for."""
    wrote_s = timed(lambda: write_page(run))
    address = (run / "report.html").as_uri()
    times = [opened(page, f"{address}#/rollouts", LISTED) for _ in range(repeats)]
    figures = {"write_s": round(wrote_s, 2), "bytes": (run / "report.html").stat().st_size}
    return {
        "still": figures | {"open_s": {"median": round(statistics.median(times), 3), "worst": round(max(times), 3)}}
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("groups", 1250), ("size", 8), ("tokens", 2000), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = maker()(Path(folder), chosen.groups, chosen.size, chosen.tokens)
        load = os.getloadavg()[0]
        figures = measure(run, chosen.repeats)
    machine = {"machine": platform.machine(), "python": platform.python_version(), "cpus": os.cpu_count()}
    machine["load_1min"] = round(load, 2)
    document = {"machine": machine, "tokens_a_rollout": chosen.tokens, **figures}
    print(json.dumps(document, indent=1))
    if chosen.json:
        chosen.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
