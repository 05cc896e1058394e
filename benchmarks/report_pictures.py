"""The pictures of the report in docs/: its overview and its groups, from the one-file report of a run, as a headless Chromium shows them.

    python benchmarks/report_pictures.py RUN [--to docs]

`RUN/report.html` is opened from the disk; `etude report RUN` writes it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from chromium import Page, browser

WIDTH = 1280
PICTURES = {"report.png": ("overview", 1330), "board.png": ("groups", 520)}  # name: page, height in CSS pixels
DRAWN = "document.body?.dataset.ready && document.querySelector('main svg, main canvas')"


def picture(page: Page, name: str, height: int, path: Path) -> None:
    page.size(WIDTH, height)
    page.run(f"location.hash = '#/{name}'")
    page.wait(f"document.body.dataset.page === '{name}' && {DRAWN}")
    page.run("document.activeElement?.blur()")
    page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
    page.picture(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--to", type=Path, default=Path("docs"))
    chosen = parser.parse_args()
    with browser() as found:
        page = found.page()
        page.dark(False)
        page.open((chosen.run / "report.html").resolve().as_uri())
        page.wait(DRAWN, 60)
        for file, (name, height) in PICTURES.items():
            picture(page, name, height, chosen.to / file)
            print(f"{chosen.to / file}: {(chosen.to / file).stat().st_size:,} bytes")
        if found.errors:
            raise SystemExit(f"the page's scripts said: {found.errors}")


if __name__ == "__main__":
    main()
