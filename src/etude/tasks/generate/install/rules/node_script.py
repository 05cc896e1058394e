"""What a package's own test script runs: which runner, with which options, over which files, after which build. Read, never run.

A script is followed through `npm run`, `run-s`, workspaces and wrappers (c8, cross-env); of the command that is found the options stay that
decide how a file is loaded (conditions, loaders, configurations), and those that only report or watch are dropped.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from etude.tasks.environment.environment import Runner

MOST_SCRIPTS = 40  # scripts may call each other in a circle
LONGEST_GLOB, MOST_WAYS = 500, 100  # characters of a pattern, and patterns that one with braces may be
TESTS = ("test", "test:unit", "tests-only", "unit", "test:node", "test:run", "mocha", "tap", "vitest", "jest")
BUILDS = ("build", "compile", "bundle", "dist", "build:lib", "prepare", "prepack", "prepublishOnly")
_RUNNERS = frozenset(
    "vitest jest mocha _mocha ts-mocha ava tape tap qunit uvu jasmine jasmine-node node tsx ts-node bun react-scripts tsdx kcd-scripts craco".split()
)
_PROGRAMS = frozenset("vitest jest mocha _mocha ava tape tap qunit jasmine".split())
# Programs that call jest, and the word that makes them do it.
_JEST_BEHIND = {"react-scripts": "test", "tsdx": "test", "kcd-scripts": "test", "craco": "test"}
# They make nothing that a test waits for.
_IDLE = frozenset(
    "set SET export echo exit true cd rimraf rm del-cli sleep husky lefthook simple-git-hooks patch-package is-ci eslint tslint prettier "
    "standard xo biome oxlint oxfmt publint attw tsd size-limit license-checker npm-run-all np changeset".split()
)
_BUILD_NAME = re.compile(r"(^|[:_-])(build|compile|bundle|transpile|dist|generate|tsc)([:_-]|$)")
_BUILDER = re.compile(
    r"^(tsc|tsgo|rollup|rolldown|webpack|esbuild|babel|tsup|tsdown|unbuild|tshy|swc|vite|microbundle|bunchee|pkgroll|obuild|zshy|parcel|node-gyp)$"
)
# Parts of a build that no test waits for.
_IDLE_NAME = re.compile(
    r"(^|[:_-])(clean|reset|docs?|site|website|types?|dts|man|lint|format|size|examples?|demo|watch|release)([:_-]|$)"
)
_IDLE_FILE = re.compile(r"(^|/)(docs?|site|website|examples?|demo)/")
_BUILD_FILE = re.compile(r"(^|[/_.-])(build|esbuild|compile|bundle|generate)[^/]*\.[cm]?[jt]s$")
_MANAGERS = frozenset(("npm", "yarn", "pnpm", "bun", "bunx"))
_ALL_OF = frozenset(("run-s", "run-p", "npm-run-all", "npm-run-all2", "concurrently"))
_MEMBERS = frozenset(("lerna", "turbo", "nx"))
_BRACES = re.compile(r"\{([^{}]*)\}")
_SEPARATORS = frozenset(("&&", "||", ";", "|", "&", "(", ")"))
_TESTS_BY_NAME = re.compile(r"test|spec", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
# Options that say how files are loaded, by runner; those of VALUED take the next word with them.
_KEPT: dict[str, re.Pattern[str]] = {
    "node": re.compile(
        r"-C$|-r$|--(conditions|import|require|loader|experimental-(?!test-coverage|strip-types|transform-types|sqlite|web)|no-|enable-|expose|harmony|stack|max-)"
    ),
    "mocha": re.compile(r"-r$|-u$|-t$|-C$|-n$|--(require|import|loader|ui|timeout|config|extension|exit|conditions|node-option|experimental|file)"),
    "jest": re.compile(r"-c$|--(config|env|testEnvironment|rootDir|preset|projects)"),
    "vitest": re.compile(r"-c$|-r$|--(config|root|dir|environment|globals)"),
    "ts-mocha": re.compile(r"-r$|-p$|--(require|paths|project|ui|timeout|config|extension|exit)"),
    "jasmine": re.compile(r"--(config|require|helper)"),
    "bun": re.compile(r"-r$|--(preload|require|conditions|tsconfig-override|timeout|define)"),
    "ava": re.compile(r"--(config|node-arguments|timeout)"),
    "qunit": re.compile(r"--require"),
    "tape": re.compile(r"-r$|--(require|import|loader)"),
}  # fmt: skip
_VALUED = frozenset(
    "-C -r -u -t -c -n --conditions --import --require --loader --experimental-loader --ui --timeout --config --extension --env "
    "--testEnvironment --root --dir --environment --rootDir --preset --node-option --file --reporter -R -p --preload --project".split()
)


@dataclass(frozen=True)
class Script:
    """`argv` ends with the options; `patterns`: files, folders or globs that it names; `builds`: shell commands that have to run before."""

    runner: Runner
    argv: tuple[str, ...]
    patterns: tuple[str, ...] = ()
    builds: tuple[str, ...] = ()
    by_file: bool = False  # node runs one file as a program: what reports of it depends on the file


@dataclass
class _ScriptReader:
    scripts: Mapping[str, str]
    members: Sequence[Mapping[str, str]]  # the scripts of a workspace's packages
    builds: list[str] = field(default_factory=list)
    seen: int = 0

    def commands(self, name: str) -> Iterator[list[str]]:
        """The simple commands behind a script, those before and after it among them."""
        self.seen += 1
        if self.seen > MOST_SCRIPTS:
            return
        for one in (f"pre{name}", name):
            if one in self.scripts:
                for words in simple(self.scripts[one]):
                    yield from self._behind(words)

    def _behind(self, words: list[str]) -> Iterator[list[str]]:
        plain = [word for word in words if not _VARIABLE.fullmatch(word) and word not in ("cross-env", "env", "npx")]
        called = next((place for place, word in enumerate(plain) if word in _MANAGERS), 0)
        plain = plain[called:]  # what is before a package manager is a wrapper: c8, nyc, dotenv
        if not plain:
            return
        program, rest = posixpath.basename(plain[0]), plain[1:]
        names = [word for word in rest if not word.startswith("-") and word not in ("run", "run-script", "exec", "r")]
        if program == "bun" and rest[:1] == ["test"]:
            yield words  # its own runner, whatever the scripts are called
        elif program in _IDLE:
            return
        elif program in _MEMBERS or (program in _MANAGERS and _everywhere(rest)):
            yield from self._of_members([name for name in names if name in TESTS] or ["test"])
        elif program in _ALL_OF:
            for name in [one for pattern in names for one in self._matching(pattern.removeprefix("npm:"))]:
                yield from self._script(name)
        elif program in _MANAGERS and names and names[0] in self.scripts:
            yield from self._script(names[0])
        elif program == "wireit" or (program in _MANAGERS and names and names[0] not in _RUNNERS):
            return
        elif _builds(program, rest):
            self.builds.append(shlex.join(_without_npx(words)))
        else:
            yield words

    def _script(self, name: str) -> Iterator[list[str]]:
        """A build is taken apart: of its commands those are kept that make what is imported."""
        yield from self.commands(name) if not _IDLE_NAME.search(name) or "doc" in name else ()

    def _of_members(self, names: Sequence[str]) -> Iterator[list[str]]:
        for scripts in self.members:
            for name in names:
                inner = _ScriptReader(scripts, (), seen=self.seen)
                yield from inner.commands(name)

    def _matching(self, pattern: str) -> list[str]:
        if "*" not in pattern or len(pattern) > LONGEST_GLOB:
            return [pattern] if pattern in self.scripts else []
        shape = re.compile(_shape(pattern, ":"))
        return [name for name in self.scripts if shape.fullmatch(name)]


def read_test_script(
    scripts: Mapping[str, str],
    members: Sequence[Mapping[str, str]] = (),
    there: Callable[[Sequence[str]], bool] = lambda patterns: True,
) -> Script | None:
    """The first command of the package's tests that a runner is in, with the files of all that run it alike; None where there is none.
    `there`: whether the tree has a file of these patterns; a program that it does not have is passed over for the next script's."""
    for name in [*TESTS, *sorted(one for one in scripts if one.startswith("test") and one not in TESTS)]:
        found = _of_script(name, scripts, members)
        if found is not None and (not found.by_file or there(found.patterns)):
            return found
    return None


def _of_script(name: str, scripts: Mapping[str, str], members: Sequence[Mapping[str, str]]) -> Script | None:
    reader = _ScriptReader(scripts, members)
    chosen = [found for words in reader.commands(name) if (found := _runner(words)) is not None]
    if not chosen:
        return None
    runner, argv, _, by_file = chosen[0]
    patterns = [word for one in chosen if one[:2] == (runner, argv) and one[3] == by_file for word in one[2]]
    return Script(runner, argv, tuple(dict.fromkeys(patterns)), tuple(dict.fromkeys(reader.builds)), by_file)


def build_of(scripts: Mapping[str, str], members: Sequence[Mapping[str, str]] = ()) -> tuple[str, ...]:
    """The commands that make what the package's entry points name; none where no script does."""
    for name in BUILDS:
        reader = _ScriptReader(scripts, members)
        own_commands = [shlex.join(_without_npx(words)) for words in reader.commands(name)]
        if reader.builds or own_commands:
            return tuple(dict.fromkeys(reader.builds or own_commands))
    return ()


def _without_npx(words: Sequence[str]) -> list[str]:
    """Programs are called by their names: npx also checks what the project says of its developers' machines."""
    return [
        word for word in words if word != "npx" and not (words[0] == "npx" and word in ("--no-install", "-y", "--yes"))
    ]


def simple(text: str) -> list[list[str]]:
    """The simple commands of a line of shell; none where its quotes do not close."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word in _SEPARATORS:
                found.append([])
            else:
                found[-1].append(word)
    except ValueError:
        return []
    return [words for words in found if words]


def glob(pattern: str) -> re.Pattern[str]:
    """`**/` any folders, `**` anything, `*` and `?` within a name, `{a,b}` either. A pattern that is too long, or has too many braces,
    matches nothing. Matching takes no exponential time: what is between two `**` is matched once, at its first place."""
    ways = _expanded(pattern) if len(pattern) <= LONGEST_GLOB else []
    return re.compile("|".join(f"(?:{_shape(one)})" for one in ways) or r"(?!)")


def _expanded(pattern: str) -> list[str]:
    """The patterns without braces; none where there are more than MOST_WAYS."""
    ways = [pattern]
    while (found := _BRACES.search(ways[0])) is not None:
        if len(ways) * (found[1].count(",") + 1) > MOST_WAYS:
            return []
        split = [(way, _BRACES.search(way)) for way in ways]
        ways = [
            f"{way[: braces.start()]}{one}{way[braces.end() :]}"
            for way, braces in split
            if braces is not None
            for one in braces[1].split(",")
        ]
    return ways


def _shape(pattern: str, mark: str = "/") -> str:
    """`mark`: what is between the names of a path."""
    first, *rest = re.split(rf"((?:\*\*{mark})+|\*{{2,}})", pattern)
    parts = [_names(first, mark)]
    for stars, chunk in zip(rest[::2], rest[1::2], strict=True):
        parts.append((rf"(?:[^{mark}]++{mark})*?" if stars.endswith(mark) else ".*?") + _names(chunk, mark))
    return "".join([*(f"(?>{part})" for part in parts[:-1]), parts[-1]])


def _names(chunk: str, mark: str) -> str:
    """Part of a path without `**`: in each name, what is between two stars is matched at its first place."""
    found: list[str] = []
    for name in chunk.split(mark):
        first, *rest = (re.escape(one).replace(r"\?", f"[^{mark}]") for one in name.split("*"))
        found.append(
            "".join(
                [first, *(f"(?>[^{mark}]*?{one})" for one in rest[:-1]), *(f"[^{mark}]*?{one}" for one in rest[-1:])]
            )
        )
    return mark.join(found)


def _everywhere(words: Sequence[str]) -> bool:
    return any(
        re.fullmatch(r"-ws?|--workspaces?(=.*)?|-r|--recursive|--filter(=.*)?|workspaces?", one) for one in words
    )


def _builds(program: str, rest: Sequence[str]) -> bool:
    if program == "node":
        return any(
            _BUILD_FILE.search(word) and not _IDLE_FILE.search(word) for word in rest if not word.startswith("-")
        )
    if program == "vite":
        return "build" in rest
    return _BUILDER.fullmatch(program) is not None and not (
        program == "tsc" and {"--noEmit", "--clean", "--emitDeclarationOnly"} & {*rest}
    )


def _runner(words: list[str]) -> tuple[Runner, tuple[str, ...], tuple[str, ...], bool] | None:
    """Of a simple command; words before the runner are wrappers, but for variables of the environment."""
    at = next((place for place, word in enumerate(words) if _runs(words, place)), None)
    if at is None:
        return None
    env = [word for word in words[:at] if _VARIABLE.fullmatch(word) and not word.startswith("NODE_ENV=")]
    before = ("env", *env) if env else ()
    program, rest = posixpath.basename(words[at]), words[at + 1 :]
    inner = _inner(rest) if program == "node" else ""
    if inner:
        return _inside_node(inner, rest, env)
    if program in ("node", "tsx", "ts-node"):
        return _node(program, rest, before)
    if program == "uvu":  # each of its files is a program that ends with 1 where a test fails
        options, patterns = _options("uvu", rest)
        return "exit", (*before, "node", *options), patterns[:1], True
    if program in _JEST_BEHIND:
        options, patterns = _options("jest", rest[1:])
        return "jest", (*before, program, "test", *options), patterns, False
    if program == "bun":
        options, patterns = _options("bun", rest[1:])
        return "bun", (*before, "bun", "test", *options), patterns, False
    program = {"_mocha": "mocha", "jasmine-node": "jasmine"}.get(program, program)
    options, patterns = _options(program, rest)
    return _as(program), (*before, program, *_run(program), *options), patterns, False


def _inside_node(inner: str, rest: list[str], env: list[str]) -> tuple[Runner, tuple[str, ...], tuple[str, ...], bool]:
    """A runner that node is given as its program: `node --experimental-vm-modules node_modules/jest/bin/jest.js`. A debugger is not waited
    for, nor a change. A bare name, which node takes for a file of the tree, is the program itself."""
    place, runner = rest.index(inner), _program(inner)
    loads, _ = _options("node", rest[:place])
    options, patterns = _options(runner, rest[place + 1 :])
    start: tuple[str, ...] = ("node", *loads, inner)
    if inner == runner:
        env, start = [*env, *([f"NODE_OPTIONS={' '.join(loads)}"] if loads else [])], (inner,)
    before = ("env", *env) if env else ()
    return _as(runner), (*before, *start, *_run(runner), *options), patterns, False


def _node(
    program: str, rest: list[str], before: tuple[str, ...]
) -> tuple[Runner, tuple[str, ...], tuple[str, ...], bool] | None:
    loads = {"tsx": ("--import", "tsx"), "ts-node": ("--require", "ts-node/register")}.get(program, ())
    options, patterns = _options("node", [word for word in rest if word != "--test"])
    if "--test" not in rest and not any(_TESTS_BY_NAME.search(word) for word in patterns):
        return None  # node --version, a program that makes or checks something
    return "node", (*before, "node", *loads, *options, "--test"), patterns, "--test" not in rest


def _runs(words: Sequence[str], place: int) -> bool:
    program = posixpath.basename(words[place])
    following = words[place + 1] if place + 1 < len(words) else ""
    if program == "bun" or program in _JEST_BEHIND:
        return following == _JEST_BEHIND.get(program, "test")
    return program in _RUNNERS


def _inner(words: Sequence[str]) -> str:
    """The runner that node is given as a program; what an option loads is none."""
    for place, word in enumerate(words):
        if _program(word) in _PROGRAMS and not (place and words[place - 1] in _VALUED):
            return word
    return ""


def _program(word: str) -> str:
    return re.sub(r"\.[cm]?js$", "", posixpath.basename(word))


def _as(program: str) -> Runner:
    if program in ("ava", "tape", "tap", "qunit"):
        return "tap"
    return "mocha" if program == "ts-mocha" else program  # type: ignore[return-value]


def _run(program: str) -> tuple[str, ...]:
    return {"vitest": ("run",), "ava": ("--tap",)}.get(program, ())


def _options(runner: str, words: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """What is kept of a runner's options, and its other words."""
    kept, patterns, take = [], [], None
    for word in words:
        if take is not None:
            kept += [word] if take else []
            take = None
        elif word.startswith("-") and word != "-":
            good = runner in _KEPT and _KEPT[runner].match(word) is not None
            kept += [word] if good else []
            take = good if word in _VALUED else None
        elif not (runner == "vitest" and word in ("run", "watch", "dev")) and word not in (">", "<"):
            patterns.append(word)
    return kept, tuple(patterns)
