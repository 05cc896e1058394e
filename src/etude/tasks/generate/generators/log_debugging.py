"""Generator `log-debugging`: all that is given is the traceback of a real run, without a word on what ought to happen.

Only failures that are exceptions of the project's own code become such tasks: an assertion of a hidden test is no log. Frames of tests and
of the runner are cut, paths are relative to the project; the interpreter wrote the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.generators.bugs.code import Code
from etude.tasks.generate.generators.bugs.concern import Concern
from etude.tasks.generate.generators.bugs.failures import Failure
from etude.tasks.generate.generators.bugs.injection import place_of, with_bugs
from etude.tasks.generate.generators.bugs.listing import list_sites, sources
from etude.tasks.generate.generators.bugs.operator import Site
from etude.tasks.generate.generators.bugs.trial import BugTrial
from etude.tasks.task import Task
from etude.tasks.validation.suite_build import Candidate

NAME = "log-debugging"
FRAMES = 12  # of a traceback that a person would paste
HEAD = "Traceback (most recent call last):"


class LogDebugging:
    name = NAME
    category = "debugging"
    languages: tuple[str, ...] = ("python",)

    def candidates(self, project: InstalledProject, bench: ProofContext, seed: int) -> Iterator[Candidate]:
        codes = sources(project.files)
        trial = BugTrial(project, bench, Concern(project))
        for site in list_sites(codes, seed + 1_000_003):  # others than bug-injection tries first
            task_id = f"debugging/{project.name}/log-{site.operator}/{site.key}"
            yield Candidate(task_id, partial(build_log, trial, codes, (site,), task_id))


async def build_log(trial: BugTrial, codes: Mapping[str, Code], sites: Sequence[Site], task_id: str) -> Task:
    """Raises CandidateRejected, InfraError."""
    draft = with_bugs(trial, codes, sites, task_id, NAME)
    broken = await trial.broken_tests(draft, place_of(sites))
    failures = trial.failures(await trial.output(draft), broken)
    shown = [text for one in failures if (text := traceback_text(one, codes))]
    if not shown:
        raise CandidateRejected("no exception of the project's own code: there is no traceback to give")
    text = min(shown, key=lambda one: (len(one), one))
    prompts = {
        "terse": _terse(text),
        "ambiguous": f"getting this, no idea why\n\n{_terse(text)}",
        "full": f"```\n{text}\n```",
    }
    draft = replace(trial.without_tests(draft, broken), prompts=prompts)
    return await trial.prove_task(draft, {"failing": len(broken)})


def traceback_text(failure: Failure, sources: Collection[str]) -> str:
    """The traceback from the project's first frame on; empty where nothing of the project's is in it, or where several are chained."""
    own = [number for number, frame in enumerate(failure.frames) if frame.path in sources]
    if failure.is_assertion or not own or failure.traceback.count(HEAD) != 1:
        return ""
    frames = failure.frames[own[0] :][-FRAMES:]
    summary = f"{failure.kind}: {failure.message}" if failure.message else failure.kind
    return "\n".join([HEAD, *(frame.text for frame in frames), summary])


def _terse(text: str) -> str:
    """Where it came from and what it said: the last frame and the last line."""
    lines = text.split("\n")
    last = max(number for number, line in enumerate(lines) if line.startswith("  File "))
    return "\n".join([HEAD, *lines[last:]])
