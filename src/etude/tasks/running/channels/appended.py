"""Runners other than pytest: their own report in their own words, and a canary at the end of each chosen test file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from etude.tasks.errors import TaskError
from etude.tasks.running.channel import (
    INSIDE,
    REPORT,
    ParentReport,
    Prepared,
    Tests,
    VerifiedRun,
    check_canaries,
    fill_command,
)
from etude.tasks.running.channels.canaries import guard, with_canary
from etude.tasks.running.parsers import documents, lines, texts
from etude.tasks.running.parsers.case import Case, NoReport, test_run
from etude.tasks.running.parsers.junit import bun, junit

SUREFIRE = "target/surefire-reports"  # where maven writes, in a project of one module


_PRINTED = re.compile(rb'(?m)^\{\s*"stats"\s*:')

Words = Callable[[tuple[str, ...], Mapping[str, bytes]], list[str]]


@dataclass(frozen=True)
class Appended:
    """`words`: the chosen files as the runner wants them named, by their paths and what is in them; `flags`: what makes it report;
    `cases`: of its answer."""

    kind: str
    default: tuple[str, ...]
    words: Words
    flags: Callable[[list[str]], list[str]]
    cases: Callable[[ParentReport, str], Iterable[Case]]
    report: str = ""

    def prepare(self, tests: Tests, files: Mapping[str, bytes], nonce: str, workdir: str) -> Prepared:
        argv = self.flags(fill_command(tests.command or self.default, self.words(tests.files, files)))
        planted: dict[str, bytes] = {}
        for path in tests.files:
            if path in files and (text := _text(files[path])) is not None:
                canary = with_canary(path, text, nonce, self.kind)
                planted |= {} if canary is None else {path: canary.encode()}
        report = REPORT if any(REPORT in word for word in argv) else self.report
        canaries = (nonce,) * bool(planted)
        passing = (guard(nonce),) * any(path.endswith(".py") for path in planted)
        return Prepared(argv, planted, report=report, canaries=canaries, passing=passing, keep_output=True)

    def hear(self, answer: ParentReport, prepared: Prepared, workdir: str) -> VerifiedRun:
        run, objection = check_canaries(test_run(self.cases(answer, workdir), answer.rc, answer.seconds), prepared)
        if not objection and answer.rc == 0 and prepared.canaries:
            objection = "it ended with status 0 though a test must fail"
        return VerifiedRun(run, objection)


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _report(answer: ParentReport) -> bytes:
    if not answer.reports:
        raise NoReport("the runner wrote no report")
    return answer.reports[0]


def _report_or_printed(answer: ParentReport) -> bytes:
    """Mocha before 9.2 knows no file for its JSON and prints it, after whatever the tests print."""
    if answer.reports:
        return answer.reports[0]
    starts = [found.start() for found in _PRINTED.finditer(answer.output)]
    end = answer.output.rfind(b"}") + 1
    if not starts:
        raise NoReport("the runner wrote no report, and printed none")
    return answer.output[starts[-1] : end]


def _node_flags(argv: list[str]) -> list[str]:
    if "--test" not in argv:
        raise TaskError(
            f"runner node needs `node --test`, this is {' '.join(argv)!r}: name another runner (tap, or exit)"
        )
    at = argv.index("--test") + 1
    return [
        *argv[:at],
        f"--test-reporter={INSIDE}/etude_reporter.mjs",
        f"--test-reporter-destination={REPORT}",
        *argv[at:],
    ]


def _append_flags(*flags: str) -> Callable[[list[str]], list[str]]:
    """The flags, unless the command already names where its report goes."""
    return lambda argv: argv if any(REPORT in word for word in argv) else [*argv, *flags]


def _go_flags(argv: list[str]) -> list[str]:
    return argv if "-json" in argv else [*argv[:2], "-json", *argv[2:]]


def _cargo_flags(argv: list[str]) -> list[str]:
    """All binaries run: else the first whose canary fails would be the last."""
    if "--no-fail-fast" in argv or "test" not in argv:
        return argv
    at = argv.index("test") + 1
    return [*argv[:at], "--no-fail-fast", *argv[at:]]


def _files(paths: tuple[str, ...], texts: Mapping[str, bytes]) -> list[str]:
    return list(paths)


def _bun_files(paths: tuple[str, ...], texts: Mapping[str, bytes]) -> list[str]:
    """Without the dot a word is a part of file names."""
    return [f"./{path}" for path in paths]


def _packages(paths: tuple[str, ...], texts: Mapping[str, bytes]) -> list[str]:
    return list(dict.fromkeys(f"./{PurePosixPath(path).parent}".replace("/.", "/") for path in paths)) or ["./..."]


def _targets(paths: tuple[str, ...], texts: Mapping[str, bytes]) -> list[str]:
    """A file of tests/ is a binary of its own; tests inside the sources are tested with the library, or the programs."""
    found: dict[tuple[str, ...], None] = {}
    for path in (PurePosixPath(path) for path in paths if path.endswith(".rs")):
        in_program = path.name == "main.rs" or "bin" in path.parent.parts
        found[
            ("--test", path.stem) if "src" not in path.parent.parts else ("--bins",) if in_program else ("--lib",)
        ] = None
    return [word for words in found for word in words]


def _modules(paths: tuple[str, ...], texts: Mapping[str, bytes]) -> list[str]:
    return [path.removesuffix(".py").replace("/", ".") for path in paths]


def _classes(paths: tuple[str, ...], texts: Mapping[str, bytes]) -> list[str]:
    """Whole names: two packages may have a class of the same name, and all that run classes know them by their whole names."""
    found: list[str] = []
    for path in paths:
        package = _PACKAGE.search(texts.get(path, b"").decode("utf-8", "replace"))
        found.append(f"{package[1]}.{PurePosixPath(path).stem}" if package else PurePosixPath(path).stem)
    return found


_PACKAGE = re.compile(r"(?m)^[^\S\n]*+package\s+([\w.]+)")  # of Java, Kotlin, Scala, Groovy

CHANNELS = {
    "node": Appended(
        "node", ("node", "--test", "{files}"), _files, _node_flags, lambda a, w: lines.node(_report(a), w), REPORT
    ),
    "jest": Appended(
        "jest",
        ("npx", "--no-install", "jest", "{files}"),
        _files,
        _append_flags("--ci", "--json", f"--outputFile={REPORT}"),
        lambda a, w: documents.jest(_report(a), w),
        REPORT,
    ),
    "vitest": Appended(
        "vitest",
        ("npx", "--no-install", "vitest", "run", "{files}"),
        _files,
        _append_flags("--reporter=json", f"--outputFile={REPORT}"),
        lambda a, w: documents.jest(_report(a), w),
        REPORT,
    ),
    "mocha": Appended(
        "mocha",
        ("npx", "--no-install", "mocha", "{files}"),
        _files,
        _append_flags("--reporter", "json", "--reporter-option", f"output={REPORT}"),
        lambda a, w: documents.mocha(_report_or_printed(a), w),
        REPORT,
    ),
    "jasmine": Appended(
        "jasmine",
        ("npx", "--no-install", "jasmine", "{files}"),
        _files,
        _append_flags(f"--reporter={INSIDE}/etude_jasmine.cjs"),
        lambda a, w: documents.jest(_report(a), w),
        REPORT,
    ),
    "bun": Appended(
        "bun",
        ("bun", "test", "{files}"),
        _bun_files,
        _append_flags("--reporter=junit", f"--reporter-outfile={REPORT}"),
        lambda a, w: bun(_report(a)),
        REPORT,
    ),
    "tap": Appended("tap", ("node", "{files}"), _files, list, lambda a, w: texts.tap(a.output)),
    "go": Appended("go", ("go", "test", "{files}"), _packages, _go_flags, lambda a, w: lines.go(a.output, w)),
    "cargo": Appended(
        "cargo", ("cargo", "test", "--offline", "{files}"), _targets, _cargo_flags, lambda a, w: texts.cargo(a.output)
    ),
    "unittest": Appended(
        "unittest",
        ("python3", "-m", "unittest", "-v", "{files}"),
        _modules,
        list,
        lambda a, w: texts.unittest(a.output),
    ),
    "junit": Appended(
        "junit",
        ("mvn", "-o", "-q", "test", "-Dtest={files}"),
        _classes,
        list,
        lambda a, w: junit([_report(a), *a.reports[1:]]),
        SUREFIRE,
    ),
}
