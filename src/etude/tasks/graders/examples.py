"""Examples of a documentation, run in a fresh sandbox: what they print comes back, what the documentation promises never goes in.

The examples are an agent's code. They are parsed here, on the host, as data (`>>> ` prompts, as doctest reads them); only their sources
are run, over the base's own files without the documentation, and outputs are compared here. To print the right thing an example has
to compute it. An example that ends the process leaves those behind it without an output, which is a failure.
"""

from __future__ import annotations

import doctest
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from etude.sandbox.errors import UserError
from etude.sandbox.protocol import Machines
from etude.sandbox.spec import WORKDIR, SandboxSpec
from etude.tasks.environment.workspace import opened
from etude.tasks.task import Task

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MAX_EXAMPLES = 400
MAX_OUTPUT_BYTES = 4 << 20
PER_EXAMPLE_CHARS = 8000

# Reads {"module", "groups"} from stdin. With a module each group starts from its names, else from nothing.
DRIVER = """
import io, json, sys, traceback
told, out, nonce = json.load(sys.stdin), sys.stdout, sys.argv[1]
write, flush, dumps, kind = out.write, out.flush, json.dumps, traceback.format_exception_only
sys.path[:0] = [place for place in sys.argv[2:] if place not in sys.path]
names = {}
if told["module"]:
    __import__(told["module"])
    names = vars(sys.modules[told["module"]])
shared = {"__name__": "__main__"}
for number, group in enumerate(told["groups"]):
    space = dict(names) if told["module"] else shared
    for at, source in enumerate(group):
        said, raised = io.StringIO(), None
        sys.stdout, sys.displayhook = said, sys.__displayhook__
        try:
            exec(compile(source, "<example>", "single"), space)
        except Exception as error:
            raised = kind(type(error), error)[-1]
        finally:
            sys.stdout = out
        write("\\n%s %s\\n" % (nonce, dumps([number, at, said.getvalue()[:LIMIT], raised])))
        flush()
""".replace("LIMIT", str(PER_EXAMPLE_CHARS))


class Unreadable(ValueError):
    """Text that holds no examples that can be read; says why."""


@dataclass(frozen=True)
class Group:
    """The examples that belong together, e.g. those of one function."""

    name: str
    examples: tuple[doctest.Example, ...]


@dataclass(frozen=True)
class Outcome:
    """Which examples printed what they promise, group by group; `said` of the first that did not."""

    good: tuple[tuple[bool, ...], ...]
    said: str = ""

    @property
    def all_good(self) -> bool:
        return all(all(group) for group in self.good)


def read_examples(name: str, text: str) -> Group:
    """Raises Unreadable."""
    try:
        found = doctest.DocTestParser().get_examples(text, name)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{name}: the examples can't be read: {error}") from error
    for example in found:
        if example.options.get(doctest.SKIP):
            raise Unreadable(f"{name}: an example is skipped: {example.source.strip()[:80]}")
    return Group(name, tuple(found))


async def run_examples(
    task: Task, files: dict[str, bytes], groups: Sequence[Group], module: str, pool: Machines, limit_s: float
) -> Outcome:
    """`module`: dotted name whose names the examples see, as in a docstring; empty: they import what they need. Raises InfraError."""
    nonce = secrets.token_hex(8)
    told = {"module": module, "groups": [[example.source for example in group.examples] for group in groups]}
    try:
        sandbox = await opened(task, pool, SandboxSpec(), lambda spec: replace(spec, pids=max(spec.pids, 64)), files)
    except UserError as error:
        return _compared(groups, {}, f"the files were refused: {error}")
    try:
        argv = ["python3", "-c", DRIVER, nonce, WORKDIR, f"{WORKDIR}/src"]
        ran = await sandbox.run(
            argv, stdin=json.dumps(told).encode(), timeout_s=limit_s, max_output_bytes=MAX_OUTPUT_BYTES,
            env={"PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
    except UserError as error:
        return _compared(groups, {}, str(error))
    finally:
        await sandbox.kill()
    ending = f"took longer than {limit_s:g} s" if ran.timed_out else ran.err.decode("utf-8", "replace").strip()[-300:]
    return _compared(groups, _results(ran.out.decode("utf-8", "replace"), nonce), ending)


def _results(out: str, nonce: str) -> dict[tuple[int, int], tuple[str, str | None]]:
    """What came of each example; one that is told twice counts as none."""
    found: dict[tuple[int, int], tuple[str, str | None]] = {}
    twice: set[tuple[int, int]] = set()
    for line in out.splitlines():
        if not line.startswith(f"{nonce} "):
            continue
        try:
            number, at, said, raised = json.loads(line[len(nonce) + 1 :])
        except ValueError:
            continue  # cut off in the middle: no result
        (twice.add((number, at)) if (number, at) in found else found.setdefault((number, at), (said, raised)))
    return {place: result for place, result in found.items() if place not in twice}


def _compared(groups: Sequence[Group], results: dict[tuple[int, int], tuple[str, str | None]], ending: str) -> Outcome:
    good: list[tuple[bool, ...]] = []
    said = ""
    for number, group in enumerate(groups):
        row: list[bool] = []
        for at, example in enumerate(group.examples):
            result = results.get((number, at))
            row.append(result is not None and _holds(example, *result))
            if not row[-1] and not said:
                got = f"no output ({ending})" if result is None else repr((result[1] or result[0])[:120])
                said = f"{group.name}: {example.source.strip()[:80]!r} promises {example.want[:80]!r}, and gives {got}"
        good.append(tuple(row))
    return Outcome(tuple(good), said)


def _holds(example: doctest.Example, said: str, raised: str | None) -> bool:
    """As doctest decides it."""
    flags = FLAGS
    for flag, on in example.options.items():
        flags = flags | flag if on else flags & ~flag
    checker = doctest.OutputChecker()
    if raised is None:
        return example.exc_msg is None and checker.check_output(example.want, said, flags)
    if example.exc_msg is None:
        return False
    if checker.check_output(example.exc_msg, raised, flags):
        return True
    if not flags & doctest.IGNORE_EXCEPTION_DETAIL:
        return False
    want, got = (text.partition(":")[0].rpartition(".")[2] for text in (example.exc_msg, raised))
    return want.strip() == got.strip()
