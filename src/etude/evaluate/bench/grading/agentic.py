"""The agentic grader: an agent of the same harness in a fresh sandbox with the attempt's files, which decides one criterion by running.

For rubrics where several solutions are right and reading does not tell. One prepared sandbox is forked for each criterion where the back
end can; else each gets a sandbox of its own. The grader ends by a verdict file, read as strictly as a judge's answer: what does not count
is asked again in the same sandbox, and then the criterion is not judged. Its cost is in `judgements.jsonl`.

A verdict also needs a command that ran: a grader that has only read has taken somebody's word.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from etude.agent.harness.agent import AgentOutcome, build_agent
from etude.agent.harness.dependencies import AgentDependencies
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.policy.protocol import Policy, Request
from etude.core.trace.completion import Completion
from etude.evaluate.bench.grading.answer import Objection, read_answer
from etude.evaluate.bench.grading.judge import Price
from etude.evaluate.bench.grading.judged_attempt import JudgedAttempt
from etude.evaluate.bench.grading.judgement import Judgement, JudgementFile, QuestionCost
from etude.evaluate.bench.grading.log import events_of
from etude.evaluate.bench.grading.rubric import Criterion, Part, Rubric
from etude.evaluate.bench.grading.together import gather_all
from etude.sandbox.errors import SandboxError, Unsupported, UserError
from etude.sandbox.protocol import Disposable, Machines
from etude.sandbox.spec import SandboxSpec

ATTEMPTS = 3
FOLDER = ".grading"
VERDICT = f"{FOLDER}/verdict.json"
MEMORY_MB = 512
MAX_VERDICT_BYTES = 16_384


class _CountedPolicy:
    """A policy whose turns are counted into a tally."""

    def __init__(self, inner: Policy, tally: QuestionCost) -> None:
        self.name, self.takes_tokens = inner.name, inner.takes_tokens
        self._inner, self._tally = inner, tally

    async def complete(self, request: Request) -> Completion:
        answer = await self._inner.complete(request)
        self._tally.add(answer.usage)
        return answer

    async def release(self, session_id: str) -> None:
        await self._inner.release(session_id)


@dataclass(frozen=True)
class AgenticGrader:
    """`harness` needs a preset with a shell. Raises InfraError and PolicyError (infra): run again, what was judged is kept."""

    policy: Policy
    pool: Machines
    file: JudgementFile
    harness: HarnessSettings
    price: Price = lambda usage: None
    adapt: Callable[[SandboxSpec], SandboxSpec] = lambda spec: spec  # the suite's: what its tasks' sandboxes need
    memory_mb: int = MEMORY_MB

    async def rubric(
        self, rubric: Rubric, shown_attempt: JudgedAttempt, files: Mapping[str, bytes], subject: str, task_id: str = ""
    ) -> list[Judgement]:
        """All criteria that one attempt decides alone, each by an agent of its own."""
        spec = self._spec(files, shown_attempt, task_id)
        wanted = [one for one in rubric.criteria if one.kind == "single"]
        known = {one.name: self.file.get(self._key(one, shown_attempt, files)) for one in wanted}
        open_ones = [one for one in wanted if known[one.name] is None]
        async with AsyncExitStack() as stack:
            boxes = await self._sandboxes(spec, len(open_ones), stack) if open_ones else []
            pairs = zip(open_ones, boxes, strict=True)
            rows = await gather_all(self._judged(rubric, one, shown_attempt, files, box, subject) for one, box in pairs)
        found = {row.criterion: row for row in rows}
        return [found.get(one.name) or known[one.name] for one in wanted]  # pyright: ignore[reportReturnType]

    async def _sandboxes(self, spec: SandboxSpec, count: int, stack: AsyncExitStack) -> list[Disposable]:
        """One for each criterion, all alike and all gone with the stack."""
        first = await self.pool.create(spec)
        stack.push_async_callback(first.kill)
        boxes: list[Disposable] = [first]
        if count > 1:
            boxes += await self._forks(first, count - 1, stack)
        while len(boxes) < count:
            box = await self.pool.create(spec)
            stack.push_async_callback(box.kill)
            boxes.append(box)
        return boxes

    async def _forks(self, first: Disposable, count: int, stack: AsyncExitStack) -> list[Disposable]:
        """Children of the first over its files; fewer where the back end can't, or some failed: those are created from scratch."""
        fork = getattr(first, "fork", None)
        if fork is None:
            return []
        try:
            children = await fork(count)
        except Unsupported:
            return []
        boxes = [child for child in children if not isinstance(child, SandboxError)]
        for box in boxes:
            stack.push_async_callback(box.kill)
        return boxes

    def _spec(self, files: Mapping[str, bytes], shown_attempt: JudgedAttempt, task_id: str) -> SandboxSpec:
        kept = {path: data for path, data in files.items() if not path.startswith(f"{FOLDER}/")}
        parts: dict[str, Part] = {"request.md": "request", "changes.diff": "diff", "trace.md": "trace"}
        shown = {name: shown_attempt.part(part).encode() for name, part in parts.items()}
        laid = {**kept, **{f"{FOLDER}/{name}": data for name, data in shown.items()}}
        return self.adapt(
            SandboxSpec(files=laid, memory_mb=self.memory_mb, labels={"task": task_id} if task_id else {})
        )

    async def _judged(
        self,
        rubric: Rubric,
        criterion: Criterion,
        shown_attempt: JudgedAttempt,
        files: Mapping[str, bytes],
        box: Disposable,
        subject: str,
    ) -> Judgement:
        key, tally = self._key(criterion, shown_attempt, files), QuestionCost()
        asked = {"name": criterion.name, "question": criterion.question, "choices": list(criterion.choices)}
        await box.write(f"{FOLDER}/criterion.json", json.dumps(asked, indent=1).encode())
        request, objection = _prompt(), ""
        reason, choice = "", None
        for attempt in range(ATTEMPTS):
            outcome = await self._agent(box, request, f"grade-{key[:16]}-{attempt}", tally)
            try:
                reason, choice = _decided(await _read(box), outcome, criterion)
                break
            except Objection as error:
                objection = str(error)
                request = f"{_prompt()}\n\nYou were here before, and your verdict does not count: {objection}. Put that right."
        silent = "" if choice is not None else f"{ATTEMPTS} verdicts did not count; the last: {objection}"
        row = Judgement(
            key, f"{self.policy.name} (agentic)", rubric.name, criterion.name, subject, choice,
            None if choice is None else criterion.value(choice), reason, silent,
            dollars=None if tally.unreported else self.price(tally.usage), **asdict(tally),
        )  # fmt: skip
        self.file.add(row)
        return row

    async def _agent(self, box: Disposable, request: str, session: str, tally: QuestionCost) -> AgentOutcome:
        facts = TaskFacts(session, request)
        return await build_agent(self.harness, _CountedPolicy(self.policy, tally), AgentDependencies(box, facts)).run()

    def _key(self, criterion: Criterion, shown_attempt: JudgedAttempt, files: Mapping[str, bytes]) -> str:
        """All that the grader is given, and who it is."""
        digest = hashlib.sha256()
        parts = [shown_attempt.part("request"), shown_attempt.part("diff"), shown_attempt.part("trace")]
        identity = [self.policy.name, _prompt(), asdict(criterion), self.harness.model_dump(mode="json"), parts]
        digest.update(json.dumps(identity, sort_keys=True).encode("utf-8", "surrogatepass"))
        for path in sorted(files):
            name = path.encode(errors="surrogateescape")
            digest.update(b"%d %d " % (len(name), len(files[path])) + name + files[path])
        return digest.hexdigest()


def _decided(text: str, outcome: AgentOutcome, criterion: Criterion) -> tuple[str, str]:
    """Raises Objection."""
    if not text:
        raise Objection(f"there is no {VERDICT}")
    reason, choice = read_answer(text, criterion.choices)
    if not any(event.kind in ("shell", "test") for event in events_of(outcome.session)):
        raise Objection("you ran nothing: a verdict rests on what you saw when you ran it")
    return reason, choice


async def _read(box: Disposable) -> str:
    """The verdict file's text, taken away so that the next try can't end on it; empty if there is none that can be read."""
    try:
        data = await box.read(VERDICT, max_bytes=MAX_VERDICT_BYTES)
        await box.remove(VERDICT)
    except UserError:
        return ""
    return data.decode("utf-8", errors="replace")


def _prompt() -> str:
    text = (Path(__file__).parent / "prompts" / "agentic.md").read_text(encoding="utf-8").strip()
    return text.format(folder=FOLDER, verdict=VERDICT)
