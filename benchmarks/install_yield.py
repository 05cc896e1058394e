"""How many projects that no person chose install by the rules. A seed draws them from the registries; their releases' contents filter them.

    python benchmarks/install_yield.py draw --seed 20261126 --python 12 --javascript 8 --names python=pypi.tsv --names javascript=npm.tsv \\
        --out drawn.toml
    python benchmarks/install_yield.py run --projects drawn.toml --out benchmarks/results/install_yield.json

A draw takes names from a list at hand (`--names`), in the order of the seed. A name counts if its newest release is of `--since` or later
(recent projects are what people have; a mirror may give a day of its own), and if the files of that release make it a project with tests
(`CRITERION`). Whether it installs plays no part. Names that do not count are counted by their reason. No registry is asked for its list of
names, and about `--most-asked` names at most: none of them is there to be scanned. The draw is then as small as it comes out.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from etude.core.sources.fetch import Fetcher
from etude.core.sources.npm import NpmSource
from etude.core.sources.project import ProjectRefused, SourceOffline
from etude.core.sources.sdist import SdistSource
from etude.pipeline.run.machine import machine
from etude.sandbox.spec import WORKDIR
from etude.tasks.generate.install.rules.node_build import missing_sources
from etude.tasks.generate.install.rules.node_package import package, scripts
from etude.tasks.generate.install.rules.node_plan import tests
from etude.tasks.generate.install.rules.node_script import simple
from etude.tasks.generate.protocols import ProjectDiscarded
from etude.tasks.generate.sources.fetched import Fetched, fetch
from etude.tasks.generate.sources.projects import CatalogueProject
from etude.tasks.running.pin import default_cache

SINCE = "2024-11-25"  # two years before this criterion was written
CRITERION = {
    "python": "a test file by its name, with a test in it",
    "javascript": "a script `test` that runs something, a test file with more than a template's content, its own code, "
    "and the sources that its tests import",
}
MOST_ASKED = 40
_PY = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py$")
# What a test file calls, whatever its library: tests, assertions, runners of rules, or an end with a status.
_TESTS = re.compile(
    r"\b(describe|it|test|suite|specify|tape?|t)\s*(\.\w+)?\s*\(|\b(assert|expect|should|chai)\b|\.run\(|\bprocess\.exit|\bthrow\b"
)
# Lines of a template: imports, frames without content, and assertions about a constant.
_EMPTY = re.compile(
    r"import\b.*|(const|let|var)\b.*\brequire\(.*|require\(.*|['\"]use strict['\"];?|(describe|it|test|suite)(\.\w+)?\(.*[{(]"
    r"|(describe|it|test)\(.*\{\s*\}\s*\);?"
    r"|[\])};,\s]*|//.*|/?\*.*|(expect|assert(\.\w+)?|t\.\w+)\s*\(\s*(true|false|1|0|null|['\"][^'\"]*['\"])\s*[,)].*"
)
_CODE = re.compile(r"\.(?:[cm]?[jt]sx?|vue|svelte)$")
_SETTINGS = re.compile(r"(^|/)(?:\.[^/]*|[^/]*\.config|[Gg](?:ulp|runt)file)\.[cm]?[jt]s$|\.d\.[cm]?ts$")
LEAST_LINES = 10  # of code that is neither test nor setting; a template without own code has fewer
START = "import sys; from etude.cli.main import main; sys.argv[0] = 'etude'; main()"


def objection(project: Fetched) -> str:
    """Why a release does not count; empty if it does."""
    files = project.texts()
    if project.wanted.language == "python":
        good = any(_PY.search(path) and "def test" in text for path, text in files.items())
        return "" if good else "no test file in it"
    return javascript_objection(files)


def javascript_objection(files: dict[str, str]) -> str:
    """Why a release of npm is no project with tests, by its own files; empty if it is one."""
    commands = simple(scripts(package(files)).get("test", ""))
    if not [words for words in commands if words[0] not in ("echo", "exit", "true", ":")]:
        return "no script test"
    found = tests(files)
    if not found:
        return "no test file in it"
    if not any(_TESTS.search(files[path]) and _has_content(files[path]) for path in found):
        return "no test in its test files"
    code = [path for path in files if _CODE.search(path) and path not in found and not _SETTINGS.search(path)]
    if sum(bool(line.strip()) for path in code for line in files[path].splitlines()) < LEAST_LINES:
        return "no own code"
    return "its tests import sources that it does not hold" if missing_sources(files, found) else ""


def _has_content(text: str) -> bool:
    return any(not _EMPTY.fullmatch(line.strip()) for line in text.splitlines())


def listed_names(file: Path) -> list[str]:
    """The first column of a table with a header, or one name a line."""
    lines = [line.split("\t")[0].strip() for line in file.read_text(encoding="utf-8").splitlines()]
    return sorted({line for line in lines if line} - {"name"})


def names_file(language: str, options: argparse.Namespace) -> Path:
    files = dict(one.split("=", 1) for one in options.names)
    if language not in files:
        raise SystemExit(
            f"--names {language}=FILE is missing: a list of names, one a line or the first column of a table"
        )
    return Path(files[language])


def drawn(language: str, count: int, options: argparse.Namespace, skipped: Counter[str]) -> Iterator[CatalogueProject]:
    cache = default_cache()
    fetcher = Fetcher(cache / "sources")
    names = listed_names(names_file(language, options))
    random.Random(f"{options.seed} {language}").shuffle(names)
    kind = "sdist" if language == "python" else "npm"
    for name in names[: options.most_asked]:
        if count == 0:
            return
        source = (SdistSource if kind == "sdist" else NpmSource)("draw", [name], fetcher, releases=1)
        try:
            refs = list(source.refs())
            if not refs or refs[0].released < options.since:
                skipped["no release since " + options.since] += 1
                continue
            called = re.sub(r"[^\w.-]", "-", name.removeprefix("@"))
            wanted = CatalogueProject(called, kind, refs[0].version, language, name)
            reason = objection(fetch(wanted, cache))
        except (ProjectRefused, ProjectDiscarded):
            reason = "can't be fetched"
        except (SourceOffline, ValueError, AttributeError) as error:
            reason = f"can't be read ({type(error).__name__})"
        if reason:
            skipped[reason] += 1
            continue
        count -= 1
        print(f"{wanted.name} {wanted.version}", file=sys.stderr, flush=True)
        yield wanted


def draw(options: argparse.Namespace) -> int:
    rows = []
    for language, count in (("python", options.python), ("javascript", options.javascript)):
        skipped: Counter[str] = Counter()
        for one in drawn(language, count, options, skipped) if count else ():
            rows.append(
                f'[[projects]]\nname = "{one.name}"\nkind = "{one.kind}"\nversion = "{one.version}"\n'
                f'language = "{one.language}"\npackage = "{one.package}"\n'
            )
        if count:
            rows.insert(
                0,
                f"# {language}, seed {options.seed}, of {len(listed_names(names_file(language, options)))} names; newest release since "
                f"{options.since}, with {CRITERION[language]}; left out: "
                + ", ".join(f"{reason}: {number}" for reason, number in skipped.items()),
            )
    options.out.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return 0


def run(options: argparse.Namespace) -> int:
    words = ["tasks", "install", "--projects", str(options.projects), "--jobs", str(options.jobs), "--json"]
    done = subprocess.run([sys.executable, "-c", START, *words], stdout=subprocess.PIPE, text=True)
    document = json.loads(
        done.stdout.replace(f"{WORKDIR}/", "./")
    )  # a reason may name a file of the project in its sandbox
    notes = [line.removeprefix("# ") for line in options.projects.read_text().splitlines() if line.startswith("#")]
    options.out.write_text(json.dumps({"machine": machine(), "draw": notes, **document}, indent=1) + "\n")
    print(f"{document['installed']} of {document['of']}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    one = verbs.add_parser("draw")
    one.add_argument("--seed", type=int, required=True)
    one.add_argument("--python", type=int, default=12)
    one.add_argument("--javascript", type=int, default=8)
    one.add_argument("--since", default=SINCE, help="Day (YYYY-MM-DD) before which a newest release does not count.")
    one.add_argument(
        "--names",
        action="append",
        default=[],
        metavar="LANGUAGE=FILE",
        help="The names of a language: one a line, or the first column of a table with a header.",
    )
    one.add_argument(
        "--most-asked",
        type=int,
        default=MOST_ASKED,
        help="Names of a language that its registry is asked about at most.",
    )
    one.add_argument("--out", type=Path, required=True)
    one.set_defaults(verb=draw)
    two = verbs.add_parser("run")
    two.add_argument("--projects", type=Path, required=True)
    two.add_argument("--jobs", type=int, default=2)
    two.add_argument("--out", type=Path, required=True)
    two.set_defaults(verb=run)
    options = parser.parse_args()
    return options.verb(options)


if __name__ == "__main__":
    sys.exit(main())
