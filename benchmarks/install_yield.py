"""How many projects that nobody chose install by the rules: drawn from the registries by a seed, filtered by what their releases hold.

    python benchmarks/install_yield.py draw --seed 20261125 --python 12 --javascript 8 --out drawn.toml
    python benchmarks/install_yield.py run --projects drawn.toml --out benchmarks/results/install_yield.json

A draw takes names from the whole list of a registry in the order of the seed. A name counts if its newest release is of SINCE or later, has
a test file by name and content, and, of npm, a script `test` of its own. Names that do not count are counted by their reason.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx

from etude.corpus.sources.fetch import Fetcher
from etude.corpus.sources.npm import NpmSource
from etude.corpus.sources.project import ProjectRefused, SourceOffline
from etude.corpus.sources.sdist import JSON_FORM, SdistSource
from etude.factory.making.order import Discarded
from etude.factory.sources.fetched import Fetched, fetch
from etude.factory.sources.projects import Wanted
from etude.run.machine import machine
from etude.tasks.running.pin import default_cache

SINCE = "2022-01-01"
LIST = "all-the-package-names"  # an npm package that lists the names of its registry
_PY = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py$")
_JS = re.compile(r"(^|/)((tests?|spec|__tests__)/.*|[^/]*[._-](test|spec)|tests?)\.[cm]?[jt]sx?$")
START = "import sys; from etude.cli.main import main; sys.argv[0] = 'etude'; main()"


def python_names(fetcher: Fetcher) -> list[str]:
    index = SdistSource("draw", [], fetcher).configured_index()
    page = httpx.get(index, headers={"Accept": JSON_FORM}, timeout=300, follow_redirects=True).raise_for_status()
    if "json" in page.headers.get("content-type", ""):
        return sorted(one["name"] for one in page.json()["projects"])
    return sorted(set(re.findall(r'href="([A-Za-z0-9._-]+)/"', page.text)))


def javascript_names(_: Fetcher) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(
            ["npm", "pack", "--silent", LIST], cwd=folder, check=True, capture_output=True, text=True
        )
        with tarfile.open(Path(folder) / packed.stdout.strip().splitlines()[-1]) as archive:
            file = archive.extractfile("package/names.json")
            assert file is not None
            return sorted(json.load(file))


def objection(project: Fetched) -> str:
    """Why a release does not count; empty if it does."""
    files = project.texts()
    if project.wanted.language == "python":
        good = any(_PY.search(path) and "def test" in text for path, text in files.items())
        return "" if good else "no test file in it"
    script = json.loads(files.get("package.json", "{}")).get("scripts", {}).get("test", "")
    if not script or "no test specified" in script:
        return "no script test"
    good = any(_JS.search(path) and not path.endswith(".d.ts") for path in files)
    return "" if good else "no test file in it"


def drawn(language: str, count: int, seed: int, cache: Path, skipped: Counter[str]) -> Iterator[Wanted]:
    fetcher = Fetcher(cache / "sources")
    names = python_names(fetcher) if language == "python" else javascript_names(fetcher)
    random.Random(f"{seed} {language}").shuffle(names)
    kind = "sdist" if language == "python" else "npm"
    for name in names:
        if count == 0:
            return
        source = (SdistSource if kind == "sdist" else NpmSource)("draw", [name], fetcher, releases=1)
        try:
            refs = list(source.refs())
            if not refs or refs[0].released < SINCE:
                skipped["no release since " + SINCE] += 1
                continue
            called = re.sub(r"[^\w.-]", "-", name.removeprefix("@"))
            wanted = Wanted(called, kind, refs[0].version, language, name)
            reason = objection(fetch(wanted, cache))
        except (ProjectRefused, Discarded):
            reason = "can't be fetched"
        except (SourceOffline, ValueError, AttributeError) as error:
            reason = f"can't be read ({type(error).__name__})"
        if reason:
            skipped[reason] += 1
            continue
        count -= 1
        print(f"{wanted.name} {wanted.version}", file=sys.stderr, flush=True)
        yield wanted


def draw(told: argparse.Namespace) -> int:
    cache = default_cache()
    rows = []
    for language, count in (("python", told.python), ("javascript", told.javascript)):
        skipped: Counter[str] = Counter()
        for one in drawn(language, count, told.seed, cache, skipped):
            rows.append(
                f'[[projects]]\nname = "{one.name}"\nkind = "{one.kind}"\nversion = "{one.version}"\n'
                f'language = "{one.language}"\npackage = "{one.package}"\n'
            )
        rows.insert(
            0, f"# {language}, seed {told.seed}; left out: " + ", ".join(f"{k}: {v}" for k, v in skipped.items())
        )
    told.out.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return 0


def run(told: argparse.Namespace) -> int:
    words = ["tasks", "install", "--projects", str(told.projects), "--jobs", str(told.jobs), "--json"]
    done = subprocess.run([sys.executable, "-c", START, *words], stdout=subprocess.PIPE, text=True)
    document = json.loads(done.stdout)
    notes = [line.removeprefix("# ") for line in told.projects.read_text().splitlines() if line.startswith("#")]
    told.out.write_text(json.dumps({"machine": machine(), "draw": notes, **document}, indent=1) + "\n")
    print(f"{document['installed']} of {document['of']}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    one = verbs.add_parser("draw")
    one.add_argument("--seed", type=int, required=True)
    one.add_argument("--python", type=int, default=12)
    one.add_argument("--javascript", type=int, default=8)
    one.add_argument("--out", type=Path, required=True)
    one.set_defaults(verb=draw)
    two = verbs.add_parser("run")
    two.add_argument("--projects", type=Path, required=True)
    two.add_argument("--jobs", type=int, default=2)
    two.add_argument("--out", type=Path, required=True)
    two.set_defaults(verb=run)
    told = parser.parse_args()
    return told.verb(told)


if __name__ == "__main__":
    sys.exit(main())
