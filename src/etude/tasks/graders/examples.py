"""Examples of a documentation, run in a fresh sandbox: what they print comes back, what the documentation promises never goes in.

The examples are an agent's code. They are parsed here, on the host, as data (`>>> ` prompts, as doctest reads them); only their sources
are run, over the base's own files without the documentation, and outputs are compared here. To print the right thing an example has
to compute it. Outputs leave one example at a time through a process that no example can reach (`tasks.isolated`): one that replies for
another leaves all without an output. An example that ends the process leaves those behind it without an output, which is a failure.
"""

from __future__ import annotations

import doctest
from collections.abc import Sequence
from dataclasses import dataclass, replace

from etude.sandbox.errors import UserError
from etude.sandbox.protocol import Machines
from etude.sandbox.spec import WORKDIR, SandboxSpec
from etude.tasks.environment.workspace import open_workspace
from etude.tasks.isolated import Replies, plain_value, replies
from etude.tasks.task import Task

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MAX_EXAMPLES = 400
MAX_OUTPUT_BYTES = 4 << 20


class UnreadableExamples(ValueError):
    """Text that holds no examples that can be read; says why."""


@dataclass(frozen=True)
class ExampleGroup:
    """The examples that belong together, e.g. those of one function."""

    name: str
    examples: tuple[doctest.Example, ...]


@dataclass(frozen=True)
class ExamplesOutcome:
    """Which examples printed what they promise, group by group; `mismatch`: how the first other one differs."""

    good: tuple[tuple[bool, ...], ...]
    mismatch: str = ""

    @property
    def all_good(self) -> bool:
        return all(all(group) for group in self.good)


def read_examples(name: str, text: str) -> ExampleGroup:
    """Raises Unreadable."""
    try:
        found = doctest.DocTestParser().get_examples(text, name)
    except (ValueError, RecursionError) as error:
        raise UnreadableExamples(f"{name}: the examples can't be read: {error}") from error
    for example in found:
        if example.options.get(doctest.SKIP):
            raise UnreadableExamples(f"{name}: an example is skipped: {example.source.strip()[:80]}")
    return ExampleGroup(name, tuple(found))


async def run_examples(
    task: Task, files: dict[str, bytes], groups: Sequence[ExampleGroup], module: str, pool: Machines, limit_s: float
) -> ExamplesOutcome:
    """`module`: dotted name whose names the examples see, as in a docstring; empty: they import what they need. Raises InfraError."""
    places = [(number, at) for number, group in enumerate(groups) for at in range(len(group.examples))]
    batches = [[(number, groups[number].examples[at].source)] for number, at in places]
    try:
        sandbox = await open_workspace(
            task, pool, SandboxSpec(), lambda spec: replace(spec, pids=max(spec.pids, 64)), files
        )
    except UserError as error:
        return _compared(groups, {}, f"the files were refused: {error}")
    try:
        found = await replies(
            sandbox, batches, (module, [WORKDIR, f"{WORKDIR}/src"]), python="python3", timeout_s=limit_s,
            max_output_bytes=MAX_OUTPUT_BYTES, env={"PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
    except UserError as error:
        return _compared(groups, {}, str(error))
    finally:
        await sandbox.kill()
    results = {place: shown for place, text in zip(places, found.texts, strict=True) if (shown := _shown(text))}
    return _compared(groups, results, _ending(found, limit_s))


def _ending(found: Replies, limit_s: float) -> str:
    if found.refused:
        return "an example replied for another one"
    if found.result.timed_out:
        return f"took longer than {limit_s:g} s"
    return found.result.err.decode("utf-8", "replace").strip()[-300:]


def _shown(text: str | None) -> tuple[str, str | None] | None:
    """What an example printed, and its exception, of a reply that says so."""
    match plain_value(text) if text is not None else None:
        case (str(printed), None | str() as raised):
            return printed, raised
    return None


def _compared(
    groups: Sequence[ExampleGroup], results: dict[tuple[int, int], tuple[str, str | None]], ending: str
) -> ExamplesOutcome:
    good: list[tuple[bool, ...]] = []
    mismatch = ""
    for number, group in enumerate(groups):
        row: list[bool] = []
        for at, example in enumerate(group.examples):
            result = results.get((number, at))
            row.append(result is not None and _holds(example, *result))
            if not row[-1] and not mismatch:
                got = f"no output ({ending})" if result is None else repr((result[1] or result[0])[:120])
                mismatch = (
                    f"{group.name}: {example.source.strip()[:80]!r} promises {example.want[:80]!r}, and gives {got}"
                )
        good.append(tuple(row))
    return ExamplesOutcome(tuple(good), mismatch)


def _holds(example: doctest.Example, output: str, raised: str | None) -> bool:
    """As doctest decides it."""
    flags = FLAGS
    for flag, on in example.options.items():
        flags = flags | flag if on else flags & ~flag
    checker = doctest.OutputChecker()
    if raised is None:
        return example.exc_msg is None and checker.check_output(example.want, output, flags)
    if example.exc_msg is None:
        return False
    if checker.check_output(example.exc_msg, raised, flags):
        return True
    if not flags & doctest.IGNORE_EXCEPTION_DETAIL:
        return False
    want, got = (text.partition(":")[0].rpartition(".")[2] for text in (example.exc_msg, raised))
    return want.strip() == got.strip()
