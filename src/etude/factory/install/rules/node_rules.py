"""The embedded pair for JavaScript: ten goals from package.json, and npm's steps below DEPS with links from the workdir.

What is installed lies outside of what an agent exports: `node_modules` of the workdir is a link. Packages of a workspace stay links to
the workdir itself, so that the tested code is the tree's and not an index's. No install script runs.
"""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from etude.factory.install.goal import TEN, Goal
from etude.factory.install.rules.repairs import javascript_wants
from etude.factory.sources.fetched import Fetched
from etude.sandbox.spec import WORKDIR
from etude.tasks.environment.environment import DEPS, Runner, TestPlan

PLACE = f"{DEPS}/js"
# Slow to install, and no test runs them: linters, formatters, releases, hooks, types, sites, browsers.
_TOOLS = re.compile(
    r"eslint|prettier|husky|lint-staged|standard(-|$)|semantic-release|release-it|commitlint|^@types/|^@changesets|typedoc|jsdoc"
    r"|^np$|^xo$|^tsd$|^dtslint|coveralls|codecov|karma|playwright|puppeteer|^webpack|^auto-changelog|^aud$|^browserify$|^eclint$|^nyc$|^c8$|in-publish|npmignore|^evalmd"
    r"|^safe-publish|^@arethetypeswrong|^docs?ify|^snyk|template-oss|^@ljharb/(eslint|tsconfig)|^rollup|^size-limit|^lerna|^nx$"
)
_TEST = re.compile(r"(^|/)((tests?|spec|__tests__)/.*\.(c|m)?js|[^/]*[._-](test|spec)\.(c|m)?js|test\.(c|m)?js)$")
_NO_TESTS = re.compile(
    r"(^|/)(fixtures?|helpers?|support|common|node_modules|browser|benchmarks?|data|cases|mocks?|__mocks__|utils?)(/|\.c?js$)"
)
MOST_FILES = 400
# Packages of one author resemble each other down to their tests, and no test of the project runs those of its dependencies.
_WITHOUT_TESTS = (
    f"find {PLACE}/node_modules -type d -name test -path '*/node_modules/*/test' -prune"
    """ -exec sh -c 'if [ -f "$1/../package.json" ]; then rm -rf "$1"; fi' _ {} \\;"""
)
_WORDS: tuple[tuple[str, Runner, tuple[str, ...], str], ...] = (
    (r"\bvitest\b", "vitest", ("npx", "--no-install", "vitest", "run", "{files}"), "vitest"),
    (r"\bjest\b", "jest", ("npx", "--no-install", "jest", "{files}"), "jest"),
    (r"\bmocha\b", "mocha", ("npx", "--no-install", "mocha", "{files}"), "mocha"),
    (r"\bava\b", "tap", ("npx", "--no-install", "ava", "--tap", "{files}"), "ava"),
    (r"\bnode\b[^&|;]*--test\b", "node", ("node", "--test", "{files}"), ""),
    (r"\btape?\b", "tap", ("npx", "--no-install", "tape", "{files}"), "tape"),
)


def package(files: Mapping[str, str], folder: str = "") -> dict[str, Any]:
    """package.json of a folder, or nothing where it is absent or broken."""
    try:
        told = json.loads(files.get(f"{folder}/package.json" if folder else "package.json", "{}"))
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def workspaces(files: Mapping[str, str]) -> dict[str, str]:
    """Folders of a monorepo's packages, by the package's name."""
    told = package(files).get("workspaces", [])
    globs = told.get("packages", []) if isinstance(told, dict) else told
    found: dict[str, str] = {}
    for path in sorted(files):
        folder = PurePosixPath(path).parent.as_posix()
        if path.endswith("/package.json") and any(
            fnmatch.fnmatch(folder, glob.strip("./").rstrip("/")) for glob in globs
        ):
            if name := package(files, folder).get("name"):
                found[name] = folder
    return found


def tests(files: Mapping[str, str]) -> list[str]:
    return sorted(path for path in files if _TEST.search(path) and not _NO_TESTS.search(path))[:MOST_FILES]


def plan(project: Fetched) -> TestPlan:
    """Who runs the tests, by the words of the project's own script and what it depends on."""
    files, wanted = project.texts(), project.wanted
    found = tuple(tests(files))
    if wanted.command:
        return TestPlan(wanted.runner or "exit", wanted.command, found)  # type: ignore[arg-type]
    told = package(files)
    scripts = told.get("scripts", {})
    script = " ".join(
        str(scripts[name]) for name in sorted(scripts) if re.match(r"(tests?|unit|tests-only|mocha|tap)\b", name)
    )
    needs = _needs(told)
    for pattern, runner, command, _ in _WORDS:
        if re.search(pattern, script):
            return TestPlan(runner, command, found)
    for _, runner, command, need in _WORDS:
        if need in needs:
            return TestPlan(runner, command, found)
    uses = " ".join(files[path] for path in found[:20])
    return (
        TestPlan("node", ("node", "--test", "{files}"), found)
        if "node:test" in uses
        else TestPlan("tap", ("node", "{files}"), found[:1])
    )


def goals(project: Fetched) -> list[Goal]:
    files = project.texts()
    chosen = plan(project)
    found: list[Goal] = []
    if chosen.files:
        words = [word for one in chosen.command for word in (chosen.files if one == "{files}" else (one,))]
        found.append(Goal(" ".join(words), "the runner's summary, most tests passed", "", None, True))
    found.append(Goal("node -e 'console.log(process.version)'", "node's version", r"v\d+\."))
    name = package(files).get("name", "")
    if name and package(files).get("type") != "module" and (package(files).get("main") or "index.js" in files):
        found.append(
            Goal(
                "node -e 'console.log(require.resolve(\"./\"))'",
                "a path in the workdir: the project's own code",
                rf"(?m)^{WORKDIR}/",
            )
        )
    if _needs(package(files)):
        found.append(Goal("readlink -f node_modules", "where packages are installed", DEPS))
        found.append(Goal("ls node_modules", "installed packages", r"\w"))
    for member, folder in list(workspaces(files).items())[:3]:
        found.append(Goal(f"readlink -f node_modules/{member}", "the workspace's own folder", f"{WORKDIR}/{folder}"))
    for path in [path for path in sorted(files) if re.fullmatch(r"(index|lib/index|src/index)\.c?js", path)][:2]:
        found.append(Goal(f"node --check {path} && echo sound", "the file parses", "sound"))
    found.append(Goal("npm --version", "npm's version", r"\d+\."))
    return found[:TEN]


def env(project: Fetched) -> dict[str, str]:
    return {"PATH": f"{PLACE}/node_modules/.bin:/usr/local/bin:/usr/bin:/bin", "NODE_ENV": "test"}


def steps(project: Fetched, wanted: Sequence[str] = (), *, plain: bool = False) -> tuple[str, ...]:
    """`wanted`: packages that an earlier try missed; `plain`: without what the project lists for development but its runner."""
    files = project.texts()
    members = workspaces(files)
    runner = {need for _, _, _, need in _WORDS if need}
    found = [f"mkdir -p {PLACE}"]
    for folder in ("", *members.values()):
        told = package(files, folder)
        needs = {name: at for name, at in _needs(told).items() if name not in members}
        if plain:
            own = told.get("dependencies") or {}
            needs = {name: own.get(name, "*") for name in needs if name in own or name in runner}
        needs |= dict.fromkeys(wanted if not folder else (), "*")
        document = {"name": told.get("name", "tree"), "version": "0.0.0", "dependencies": needs}
        if members and not folder:
            document["workspaces"] = list(members.values())
        place = f"{PLACE}/{folder}".rstrip("/")
        found.append(f"mkdir -p {place} && cat > {place}/package.json <<'EOF'\n{json.dumps(document)}\nEOF")
    found.append(
        f"cd {PLACE} && HOME=/tmp npm install --ignore-scripts --no-package-lock --legacy-peer-deps --loglevel=error --cache=/tmp/.npm"
    )
    found.append(f"mkdir -p {PLACE}/node_modules && ln -s {PLACE}/node_modules {WORKDIR}/node_modules")
    for name, folder in members.items():
        found.append(
            f"mkdir -p $(dirname {PLACE}/node_modules/{name}) && ln -sfn {WORKDIR}/{folder} {PLACE}/node_modules/{name}"
        )
        found.append(
            f"if [ -d {PLACE}/{folder}/node_modules ]; then ln -s {PLACE}/{folder}/node_modules {WORKDIR}/{folder}/node_modules; fi"
        )
    found += ["rm -rf /tmp/.npm", _WITHOUT_TESTS]
    return tuple(found)


def learned(project: Fetched, output: str, wanted: Sequence[str]) -> list[str]:
    own = {package(project.texts()).get("name", "")}
    return [name for name in javascript_wants(output, set(wanted)) if name not in own]


def needs_itself(project: Fetched, output: str) -> bool:
    """Whether what its own tests are run with needs a release of it, which is denied."""
    name = str(package(project.texts()).get("name", project.wanted.in_registry))
    return (
        "403" in output
        and re.search(rf"/npm/{re.escape(name.replace('/', '%2f'))}(?![\w.-])", output, re.IGNORECASE) is not None
    )


def in_place_of_copies(project: Fetched) -> str:
    """No released copy of the project stays: whoever asks for it gets the working tree."""
    name = str(package(project.texts()).get("name", project.wanted.in_registry))
    link = f'rm -rf "$1" && ln -s {WORKDIR} "$1"'
    where = shlex.quote(f"*/node_modules/{name}")
    return f"find {PLACE}/node_modules -type d -path {where} -prune -exec sh -c '{link}' _ {{}} \\;"


def _needs(told: Mapping[str, Any]) -> dict[str, str]:
    """Of dependencies all, of those for development what tests may need."""
    dev = {name: at for name, at in (told.get("devDependencies") or {}).items() if not _TOOLS.search(name)}
    every = {**dev, **(told.get("peerDependencies") or {}), **(told.get("dependencies") or {})}
    return {
        name: at
        for name, at in every.items()
        if re.match(r"^[\^~<>=\d*.vx |npm:@/-]", str(at)) and "file:" not in str(at)
    }
