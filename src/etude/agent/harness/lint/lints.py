"""Runs the linters that the repository configures and the machine has, and remembers what they said, for the difference."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from etude.agent.harness.lint.finding import (
    LinterError,
    LintFinding,
    delta,
    read_eslint,
    read_go_vet,
    read_pyright,
    read_ruff,
    read_tsc,
)
from etude.agent.workspace.workspace import Workspace, WorkspaceError

# The linters we know, as data: by which files a repository configures each, how it is run, how its output is read.


_PYTHON = (".py", ".pyi")
_SCRIPT = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts")


@dataclass(frozen=True)
class Linter:
    """`marks`: files in the root that configure it; or a `table` in pyproject.toml, or a `key` in package.json. `whole`: it looks
    at the project and takes no files. `good`: exit statuses that come with output to read."""

    name: str
    program: str
    arguments: tuple[str, ...]
    suffixes: tuple[str, ...]
    marks: tuple[str, ...]
    read: Callable[[str, str], list[LintFinding]]
    table: str = ""
    key: str = ""
    whole: bool = False
    good: tuple[int, ...] = (0, 1)
    piped: tuple[str, ...] = ()  # instead of files: how it reads a text from its input, as of the file named next


LINTERS = (
    Linter("ruff", "ruff", ("check", "--no-fix", "--no-cache", "--force-exclude", "--output-format", "json"), _PYTHON,
           ("ruff.toml", ".ruff.toml"), read_ruff, table="[tool.ruff", piped=("-", "--stdin-filename")),
    Linter("pyright", "pyright", ("--outputjson",), _PYTHON, ("pyrightconfig.json",), read_pyright, table="[tool.pyright"),
    Linter("eslint", "eslint", ("--format", "json"), _SCRIPT,
           ("eslint.config.js", "eslint.config.mjs", "eslint.config.cjs", "eslint.config.ts", ".eslintrc", ".eslintrc.js",
            ".eslintrc.cjs", ".eslintrc.json", ".eslintrc.yml", ".eslintrc.yaml"), read_eslint, key='"eslintConfig"',
           piped=("--stdin", "--stdin-filename")),
    Linter("tsc", "tsc", ("--noEmit", "--pretty", "false"), (".ts", ".tsx", ".mts", ".cts"), ("tsconfig.json",), read_tsc,
           whole=True, good=(0, 1, 2)),
    Linter("go vet", "go", ("vet", "./..."), (".go",), ("go.mod",), read_go_vet, whole=True),
)  # fmt: skip


# A linter's report of a large repository; more is not read.
_MAX_OUTPUT_BYTES = 4 << 20
# Where a project keeps programs of its own, before those of the machine.
_PROJECT_PROGRAMS = ("node_modules/.bin", ".venv/bin", "venv/bin")


@dataclass(frozen=True)
class LintReport:
    """`findings` in order; `new` and `gone` against the last look at the same files, `seen` if there was one. `ran`: linters that
    looked; `problems`: what kept others from it, in words."""

    findings: list[LintFinding]
    new: list[LintFinding]
    gone: list[LintFinding]
    seen: bool
    ran: list[str]
    problems: list[str]


class LintRunner:
    """The linters of one session's workspace."""

    def __init__(self, workspace: Workspace, timeout_s: float) -> None:
        self._workspace = workspace
        self._timeout_s = timeout_s
        self._last: dict[str, list[LintFinding]] = {}  # by file

    async def check(self, paths: list[str]) -> LintReport:
        """Look at some files, or at all that the linters take if none are named."""
        findings: set[LintFinding] = set()
        ran: list[str] = []
        problems: list[str] = []
        for linter in await self._configured():
            files = [path for path in paths if path.endswith(linter.suffixes)]
            if paths and not files:
                continue
            try:
                found = await self._run(linter, files)
            except (LinterError, WorkspaceError) as error:
                problems.append(f"{linter.name}: {error}")
                continue
            ran.append(linter.name)
            findings |= {one for one in found if not paths or one.path in files}
        return self._reported(sorted(findings), paths, ran, problems)

    async def change(self, originals: Mapping[str, bytes | None], *, within_s: float) -> LintReport:
        """What an edit changed: the files as they are, against what they held before, by the linters that read from a pipe.

        Types are left out: they depend on the other files, which are changed as well. A linter that did not look at all of
        its files, or not in time, is a problem and counts nothing.
        """
        end_s = time.monotonic() + within_s
        before: set[LintFinding] = set()
        after: set[LintFinding] = set()
        ran: list[str] = []
        problems: list[str] = []
        for linter in await self._configured():
            files = [path for path in originals if path.endswith(linter.suffixes)] if linter.piped else []
            then, now = set[LintFinding](), set[LintFinding]()
            try:
                for path in files:
                    then |= await self._piped(linter, path, originals[path], end_s)
                    now |= await self._piped(linter, path, await self._workspace.bytes_of(path), end_s)
            except (LinterError, WorkspaceError) as error:
                problems.append(f"{linter.name}: {error}")
                continue
            before, after = before | then, after | now
            ran += [linter.name] if files else []
        new, gone = delta(sorted(before), sorted(after))
        return LintReport(sorted(after), new, gone, True, ran, problems)

    async def _piped(self, linter: Linter, path: str, data: bytes | None, end_s: float) -> set[LintFinding]:
        """Findings in a file's content; none in a file that isn't there. Raises Unreadable where there is no time left."""
        if data is None:
            return set()
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise LinterError("there was no time for it")
        return set(await self._run(linter, [path], data, timeout_s=min(left_s, self._timeout_s)))

    def _reported(
        self, findings: list[LintFinding], paths: list[str], ran: list[str], problems: list[str]
    ) -> LintReport:
        looked = paths or sorted({*self._last, *(finding.path for finding in findings)})
        seen = [path for path in looked if path in self._last]
        before = [finding for path in seen for finding in self._last[path]]
        now = [finding for finding in findings if finding.path in seen]
        new, gone = delta(before, now)
        if ran:
            self._last |= {path: [one for one in findings if one.path == path] for path in looked}
        return LintReport(findings, new, gone, bool(seen), ran, problems)

    async def _configured(self) -> list[Linter]:
        """In a fixed order."""
        names = [entry.path for entry in await self._workspace.entries(".")]
        tables = await self._text("pyproject.toml", names)
        keys = await self._text("package.json", names)
        return [
            linter
            for linter in LINTERS
            if any(mark in names for mark in linter.marks)
            or linter.table
            and linter.table in tables
            or linter.key
            and linter.key in keys
        ]

    async def _text(self, name: str, names: list[str]) -> str:
        if name not in names:
            return ""
        try:
            return (await self._workspace.load(name)).text
        except WorkspaceError:
            return ""  # not text, or too large: it configures nothing that we could read

    async def _run(
        self, linter: Linter, files: list[str], text: bytes | None = None, *, timeout_s: float | None = None
    ) -> list[LintFinding]:
        """Findings in files, or in a text in place of one. Raises Unreadable with what the linter said instead of findings."""
        folder = (
            "pwd -P; for folder in " + " ".join(_PROJECT_PROGRAMS) + '; do PATH="$PWD/$folder:$PATH"; done; exec "$@"'
        )
        named = [f"./{path}" if path.startswith("-") else path for path in files]
        arguments = [*linter.arguments, *(linter.piped if text is not None else ())]
        arguments += [] if linter.whole else named or ["."]
        argv = ["/bin/sh", "-c", folder, "lint", linter.program, *arguments]
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        done = await self._workspace.run(
            argv, timeout_s=timeout_s, max_output_bytes=_MAX_OUTPUT_BYTES, stdin=text or b""
        )
        if done.timed_out:
            raise LinterError(f"took longer than {timeout_s:g} s; name fewer files")
        if done.rc == 127:
            raise LinterError("is configured here but not installed")
        root, _, output = done.out.decode(errors="replace").partition("\n")
        if done.rc not in linter.good:
            said = done.err.decode(errors="replace").strip().split("\n")[-1] or output.strip().split("\n")[-1]
            raise LinterError(f"failed with exit {done.rc}: {said[:200]}")
        try:
            return linter.read(output + (done.err.decode(errors="replace") if linter.whole else ""), root)
        except (
            KeyError,
            TypeError,
            AttributeError,
            IndexError,
            ValueError,
        ) as error:  # a repository's own program may print anything
            raise LinterError(f"its output has another form ({type(error).__name__})") from error
