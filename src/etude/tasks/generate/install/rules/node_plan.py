"""How a JavaScript project's tests are run: by its own script, over the files that it names, after the build that they need. Pure."""

from __future__ import annotations

import platform
import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from etude.tasks.environment.environment import Runner, TestPlan
from etude.tasks.generate.install.rules.node_build import needs_build, reached_files
from etude.tasks.generate.install.rules.node_package import needs, package, scripts, workspaces
from etude.tasks.generate.install.rules.node_script import Script, build_of, glob, read_test_script
from etude.tasks.generate.install.rules.outside import without_services
from etude.tasks.generate.sources.fetched import Fetched

MOST_FILES = 400
_TEST = re.compile(
    r"(^|/)((tests?|specs?|__tests?__)/.*\.[cm]?[jt]sx?|[^/]*[._-](test|spec)\.[cm]?[jt]sx?|tests?\.[cm]?[jt]sx?)$"
)
_BY_NAME = re.compile(r"[._-](test|spec)\.[cm]?[jt]sx?$")
# No tests of this runner, whatever a file is called: data, and what drives a browser.
_NEVER = re.compile(
    r"(^|/)(fixtures?|node_modules|benchmarks?|__mocks__|snapshots?|__snapshots__|e2e|playwright|cypress|__fixtures__)/|\.d\.[cm]?ts$"
)
_NO_TESTS = re.compile(r"(^|/)(helpers?|support|common|browser|data|cases|mocks?|utils?|setup)(/|\.[cm]?[jt]s$)")
_COPIES = re.compile(r"^(dist|build|out|lib|es|esm|cjs|coverage)/")  # where compiled tests lie
# A file of a folder of tests without one of these tests nothing: data, a generator of fixtures, a benchmark.
_SPEAKS = re.compile(
    r"\b(describe|it|test|tape?|suite|assert\w*|expect|specify|t)\s*[.(`]|node:test|node:assert|['\"]assert['\"]"
)
_ELSEWHERE = re.compile(r"""['"](@playwright/test|playwright|cypress|puppeteer|@web/test-runner)['"]""")
_NODE_TEST = re.compile(r"""['"](node:test|test)['"]""")
_CALLS = re.compile(r"""['"](node:test|test)['"]|^[^\S\n]*+(describe|it|test|suite)\s*[.(]""", re.MULTILINE)
_GLOBALS = re.compile(r"^[^\S\n]*+(describe|it)(\.\w+)?\(", re.MULTILINE)
_EXPECTS = re.compile(r"""['"](chai|expect|expect\.js|vitest|bun:test|@jest/globals)['"]""")
_TAPE = re.compile(r"""['"](tape|tap)['"]""")
_OLD_JASMINE = re.compile(r"[\^~]?[12]\.")
_SCRIPT = re.compile(r"\.[cm]?[jt]sx?$")
_TYPED = re.compile(r"\.([cm]?ts|tsx)$")
_LOADERS = re.compile(r"tsx|ts-node|swc|esbuild|babel|jiti|sucrase|ts-mocha|tsimp|typescript")
_CONFIGURED = re.compile(r"^(\.mocharc\.[a-z]+|ava\.config\.[cm]?js|test/mocha\.opts)$")
BUN = f"@oven/bun-linux-{'aarch64' if platform.machine() == 'aarch64' else 'x64-baseline'}"  # the program itself
LOAD = "NODE_OPTIONS=--import=tsx"
_EACH = 'failed=0; for one in "$@"; do {} "$one" || failed=1; done; exit $failed'
BUILD_FAILED = "the build before the tests failed"
BY_NEED: tuple[tuple[str, Runner, tuple[str, ...]], ...] = (
    ("vitest", "vitest", ("vitest", "run")),
    ("jest", "jest", ("jest",)),
    ("mocha", "mocha", ("mocha",)),
    ("ava", "tap", ("ava", "--tap")),
    ("tape", "tap", ("tape",)),
    ("qunit", "tap", ("qunit",)),
    ("jasmine", "jasmine", ("jasmine",)),
)


@dataclass(frozen=True)
class Builds:
    """Commands before the tests. `strict`: where one fails the tests do not run."""

    commands: tuple[str, ...] = ()
    strict: bool = True


def plan(project: Fetched, other: bool = False) -> TestPlan:
    """The runner, the options and the files of the project's own script, after the build that its tests need; without a script that is
    understood, the runner that it depends on. `other`: the opposite choice about the build (`builds_of`)."""
    files, wanted = project.texts(), project.wanted
    if wanted.command:
        return TestPlan(wanted.runner or "exit", wanted.command, tuple(tests(files)))  # type: ignore[arg-type]
    runner, argv, chosen = _run(files)
    builds = builds_of(files, other)
    if builds.commands:
        made = f"{{ {(' && ' if builds.strict else '; ').join(builds.commands)}; }} >&2"
        after = f"|| {{ echo '{BUILD_FAILED}' >&2; exit 1; }}; " if builds.strict else "; "
        argv = ("sh", "-c", f'{made} {after}exec "$@"', "sh", *argv)
    return TestPlan(runner, (*argv, "{files}"), tuple(chosen[:MOST_FILES]))


def suite(chosen: TestPlan) -> str:
    """The plan as one command of a shell, by which an environment is judged: over the tests that ask for nothing outside."""
    files = without_services(chosen.files)
    return shlex.join(word for one in chosen.command for word in (files if one == "{files}" else (one,)))


def tests(files: Mapping[str, str]) -> list[str]:
    """Files of tests by name and content. Compiled copies count where there is nothing else."""
    named = sorted(path for path in files if _TEST.search(path) and not _NEVER.search(path))
    named = [path for path in named if _BY_NAME.search(path) or not _NO_TESTS.search(path)]
    speaking = [path for path in named if _SPEAKS.search(files[path]) and not _ELSEWHERE.search(files[path])]
    sources = [path for path in speaking if not _COPIES.search(path)]
    return (sources or speaking or named)[:MOST_FILES]


def builds_of(files: Mapping[str, str], other: bool = False) -> Builds:
    """What runs before the tests, where a file that they reach is only there after it: as their script says, else the build.

    It runs with every run of the tests, never once for all: what is built holds the code that a task takes away. `other`: with the build
    where it seemed not needed; and where it fails, the tests run all the same (a compiler that complains also compiles)."""
    found = script(files)
    own = found.builds if found is not None else ()
    _, _, chosen = _run(files)
    needed = needs_build(files, chosen, in_script=bool(own)) or _rewritten(files)
    if not needed and not other:
        return Builds()
    commands = own or build_of(scripts(package(files)), _of_members(files))
    return Builds(commands, strict=not other)


def script(files: Mapping[str, str]) -> Script | None:
    return read_test_script(scripts(package(files)), _of_members(files), lambda patterns: bool(_named(patterns, files)))


def programs(chosen: TestPlan) -> list[str]:
    """Packages of the registry that a plan runs or loads, whether the project lists them or not."""
    words = [word for one in chosen.command for word in re.split(r"[\s=]", one)]
    named = [need for need, _, _ in BY_NEED if need in words] + (["tsx"] if "tsx" in words else [])
    return [*named, *([BUN] if chosen.runner == "bun" else [])]


def _run(files: Mapping[str, str]) -> tuple[Runner, tuple[str, ...], list[str]]:
    """Runner, command and files, before any build."""
    found = script(files)
    if found is None:
        chosen = tests(files)
        runner, argv = _by_need(files, chosen)
    else:
        chosen = _named(found.patterns, files) or tests(files)
        runner, argv = found.runner, found.argv
        if runner == "tap" and "tap" in argv:
            runner, argv = "node", ("node",)  # node-tap's files are programs that print TAP
    if runner == "jasmine" and _OLD_JASMINE.match(str(needs(package(files)).get("jasmine", ""))):
        runner = "exit"  # it takes no reporter
        return runner, _typed(runner, argv, chosen, files), chosen
    if runner == "bun" or any("bun:test" in files[path] for path in chosen):
        return (
            "bun",
            (f"node_modules/{BUN}/bin/bun", *(argv[argv.index("test") :] if runner == "bun" else ("test",))),
            chosen,
        )
    if runner in ("node", "exit"):
        by_file = runner == "exit" or (found is not None and found.by_file)
        runner, argv = _as_programs(argv, chosen, files, _NODE_TEST if by_file else _CALLS)
    return runner, _typed(runner, argv, chosen, files), chosen


def _as_programs(
    argv: tuple[str, ...], chosen: Sequence[str], files: Mapping[str, str], own: re.Pattern[str]
) -> tuple[Runner, tuple[str, ...]]:
    """Files that hold no test of node's own runner (`own`), and import none below their folder, are run as programs: they print TAP, or
    only end with a status."""
    runner: Runner = "exit"
    folders = tuple(f"{posixpath.dirname(path)}/" for path in chosen if "/" in path)
    texts = [files[path] for path in reached_files(files, chosen) if path in chosen or path.startswith(folders)]
    if any(_TAPE.search(text) for text in texts):
        runner = "tap"
    elif any(own.search(text) for text in texts):
        return "node", argv if "--test" in argv else (*argv, "--test")
    each = tuple(word for word in argv if word != "--test")
    return runner, each if len(chosen) == 1 else ("sh", "-c", _EACH.format(shlex.join(each)), "sh")


def _typed(runner: Runner, argv: tuple[str, ...], chosen: Sequence[str], files: Mapping[str, str]) -> tuple[str, ...]:
    """With a loader for TypeScript, where neither the runner nor the project has one."""
    if runner in ("jest", "vitest", "bun") or not any(_TYPED.search(path) for path in chosen):
        return argv
    document = package(files)
    named = [str(document.get(key, "")) for key in ("mocha", "ava", "tap")]
    named += [text for path, text in files.items() if _CONFIGURED.fullmatch(path)]
    return argv if any(_LOADERS.search(text) for text in (*argv, *named)) else ("env", LOAD, *argv)


def _rewritten(files: Mapping[str, str]) -> bool:
    """Whether ava runs what is compiled in place of the files that it is given."""
    texts = [str(package(files).get("ava", "")), *(files[path] for path in files if path.startswith("ava.config."))]
    return any("rewritePaths" in text for text in texts)


def _of_members(files: Mapping[str, str]) -> list[dict[str, str]]:
    return [scripts(package(files, folder)) for folder in workspaces(files).values()]


def _by_need(files: Mapping[str, str], chosen: Sequence[str]) -> tuple[Runner, tuple[str, ...]]:
    depends = needs(package(files))
    for need, runner, argv in BY_NEED:
        if need in depends:
            return runner, argv
    texts = [files[path] for path in chosen]
    if not any(_GLOBALS.search(text) for text in texts) or any(_NODE_TEST.search(text) for text in texts):
        return "node", ("node", "--test")
    expects = any("expect(" in text and not _EXPECTS.search(text) for text in texts)
    return ("jest", ("jest",)) if expects else ("mocha", ("mocha",))  # whose words the files use without importing them


def _named(patterns: Sequence[str], files: Mapping[str, str]) -> list[str]:
    """The files that a script names: as they are, below a folder, or by a glob."""
    found: dict[str, None] = {}
    for pattern in (one.strip("'\"").removeprefix("./").rstrip("/") for one in patterns):
        if pattern in files:
            found[pattern] = None
            continue
        below = [path for path in files if path.startswith(f"{pattern}/") and _SCRIPT.search(path)]
        if len(patterns) == 1 and any(_BY_NAME.search(path) for path in below):
            below = [path for path in below if _BY_NAME.search(path)]  # a folder of sources with tests among them
        shape = glob(pattern) if re.search(r"[*?{]", pattern) else None
        matched = [path for path in files if shape is not None and shape.fullmatch(path)]
        spoken = [path for path in (*below, *matched) if "node_modules/" not in path and not path.endswith(".d.ts")]
        found |= dict.fromkeys(sorted(path for path in spoken if _SPEAKS.search(files[path])))
    return list(found)
