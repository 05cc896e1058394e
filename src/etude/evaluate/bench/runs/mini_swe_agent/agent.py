"""One attempt by mini-swe-agent, in place of our harness: the sandbox, the policy, the limits, the session and the grading stay the same."""

from __future__ import annotations

import asyncio
import shlex
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from etude.evaluate.bench.runs.mini_swe_agent.process import AgentDied, play
from etude.agent.proxy.book import SessionRegistry
from etude.agent.proxy.launch import environment
from etude.agent.proxy.serving import serving
from etude.agent.proxy.settings import CaptureSettings
from etude.agent.chat.renderer import Renderer
from etude.agent.harness.agent import AgentOutcome
from etude.agent.harness.budget import Budget
from etude.agent.harness.dependencies import renderer_for
from etude.agent.harness.settings import HarnessSettings
from etude.agent.metrics.of_session import counters_of
from etude.agent.policy.protocol import Policy
from etude.rollout.attempt import task_facts
from etude.sandbox.errors import InfraError, UserError
from etude.sandbox.protocol import Disposable
from etude.tasks.task import Task
from etude.core.trace.reader import read_session
from etude.core.trace.session import Session
import asyncio
from dataclasses import replace
from etude.agent.harness.budget import Budget
from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.protocol import Policy, PolicyError, Request
from etude.core.trace.completion import Completion


# The policy as another agent's endpoint offers it: asked exactly as our harness would ask, whatever the agent's own
# client sends.
#
# Temperature, effort, seeds and limits are the participant's, and all turns are of the attempt's one session, so that
# tokens and money are counted as everywhere. What must end the attempt (a lost endpoint, a spent budget) is kept,
# because the agent only hears a refusal.


class StandIn:
    """For one session. `failure` is set to what must end it."""

    def __init__(self, inner: Policy, settings: HarnessSettings, session_id: str, seed: int | None) -> None:
        self.name, self.takes_tokens = inner.name, inner.takes_tokens
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.full = False  # it asked for more than the session's tokens
        self.seconds = 0.0
        self._inner, self._settings, self._session, self._seed = inner, settings, session_id, seed
        self._budget = Budget.of(settings)
        self._turns = self._held = 0

    async def complete(self, request: Request) -> Completion:
        left = self._budget.session_tokens - max(self._held, len(request.prompt_ids)) - 1
        if left < 1:
            self.full = True
            raise PolicyError("the session's tokens are used up (max_session_tokens)", infra=False)
        asked = replace(
            request,
            session_id=self._session,
            max_tokens=min(self._budget.turn_tokens, left),
            temperature=self._settings.temperature,
            effort=self._settings.effort,
            seed=None if self._seed is None else self._seed + self._turns,
        )
        self._turns += 1
        start = asyncio.get_running_loop().time()
        try:
            answer = await self._inner.complete(asked)
        except Exception as error:
            if isinstance(error, PolicyError) and not error.infra:
                raise
            if not self.failure.done():
                self.failure.set_exception(error)
            raise PolicyError(str(error)) from error
        finally:
            self.seconds += asyncio.get_running_loop().time() - start
        self._held = answer.usage.input_tokens + answer.usage.output_tokens
        return answer

    async def release(self, session_id: str) -> None:
        await self._inner.release(self._session)


NAME = "mini-swe-agent"
# Its own words for an end, as ours; everything else that it ends with is a refusal of its requests.
ENDS = {"Submitted": "done", "LimitsExceeded": "max_turns", "RepeatedFormatError": "message"}
# Its prompt speaks of bash, its own environments call sh; either way in a shell of its own, both streams as one.
SHELL = 'if command -v bash >/dev/null 2>&1; then exec bash -c "$1" 2>&1; else exec sh -c "$1" 2>&1; fi'
PAGERS = {"PAGER": "cat", "MANPAGER": "cat", "LESS": "-R", "PIP_PROGRESS_BAR": "off", "TQDM_DISABLE": "1"}
MAX_OUTPUT_BYTES = 1 << 20


@dataclass(frozen=True)
class MiniSweAgent:
    """Runs attempts; called by `rollout.attempt` where our own agent would be built."""

    settings: HarnessSettings
    renderer: Renderer | None = None

    async def __call__(
        self, task: Task, policy: Policy, sandbox: Disposable, session_id: str, seed: int | None
    ) -> AgentOutcome:
        """Raises InfraError, PolicyError (infra), and what a policy of the bench raises to end all."""
        start, inside = time.perf_counter(), _Inside(sandbox, self.settings)
        stand_in = StandIn(policy, self.settings, session_id, seed)
        with tempfile.TemporaryDirectory(prefix="etude-mini-") as folder:
            home = Path(folder)
            most, effort = self.settings.max_tokens_per_turn, self.settings.effort
            renderer = self.renderer and renderer_for(self.renderer, self.settings)
            book = SessionRegistry(stand_in, CaptureSettings(home / "sessions", most, effort=effort), renderer)
            async with serving(book) as address:
                session, key = book.open()
                job = {"task": request_of(task), "turns": Budget.of(self.settings).turns}
                playing = asyncio.ensure_future(play(job, environment(address, key), home, inside.run))
                end = await _first(playing, stand_in.failure)
                reason = "max_tokens" if stand_in.full else ENDS.get(end["end"], "refused")
                await session.end(reason)
            if not session.path.is_file():
                raise InfraError(f"mini-swe-agent asked nothing and ended as {end['end']}: {end['message']}")
            recorded = _ours(read_session(session.path), task, policy, self.settings, session_id)
        seconds = {"policy": stand_in.seconds, "tools": inside.seconds, "all": time.perf_counter() - start}
        return AgentOutcome(reason, end["message"], recorded.segments(), counters_of(recorded), recorded, seconds)


def request_of(task: Task) -> str:
    """The text it gets: the request as typed and how the tests are run, for which our harness has a tool."""
    parts = [task.instruction, task_facts(task).instructions]
    if task.test_command:
        parts.append(f"The tests are run with: {shlex.join(task.test_command)}")
    return "\n\n".join(text for text in parts if text)


async def _first(playing: asyncio.Future[dict[str, Any]], failure: asyncio.Future[None]) -> dict[str, Any]:
    """How it ended; or what must end it, raised once its process is gone."""
    try:
        await asyncio.wait((playing, failure), return_when=asyncio.FIRST_COMPLETED)
        if failure.done():
            failure.result()
        return await playing
    except AgentDied as error:
        raise InfraError(str(error)) from error
    finally:
        failure.cancel()
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)


def _ours(session: Session, task: Task, policy: Policy, settings: HarnessSettings, session_id: str) -> Session:
    """With the header of an attempt of the bench, so that judges and pages find what they look for."""
    header = replace(
        session.header,
        session_id=session_id,
        task_id=task.id,
        policy=policy.name,
        effort=settings.effort,
        facts=task_facts(task).to_json(),
    )
    return Session(header, session.entries)


class _Inside:
    """Its commands, run in the task's sandbox."""

    def __init__(self, sandbox: Disposable, settings: HarnessSettings) -> None:
        self._sandbox = sandbox
        self._timeout_s = max(settings.tool_timeout_s, settings.test_timeout_s)  # it has one tool for both
        self.seconds = 0.0

    async def run(self, command: str) -> dict[str, Any]:
        """As its own environments tell it."""
        start = time.perf_counter()
        try:
            found = await self._sandbox.run(
                ["sh", "-c", SHELL, "sh", command],
                env=PAGERS,
                timeout_s=self._timeout_s,
                max_output_bytes=MAX_OUTPUT_BYTES,
            )
        except UserError as error:
            return {"output": "", "returncode": -1, "exception_info": f"the command can't be run: {error}"}
        finally:
            self.seconds += time.perf_counter() - start
        text = (found.out + found.err).decode("utf-8", errors="replace")
        if found.timed_out:
            why = f"An error occurred while executing the command: it timed out after {self._timeout_s:g} seconds"
            return {"output": text, "returncode": -1, "exception_info": why}
        return {"output": text, "returncode": found.rc, "exception_info": ""}
