"""From flags, environment and the person's settings to what the face works on. Flags win, then the environment, then the file."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from etude.agent.app.chat_session import SessionStart, choice_of
from etude.agent.app.config import load_config
from etude.agent.app.errors import UsageError
from etude.agent.app.extensions import ExtensionOptions
from etude.agent.app.headless import AgentJob
from etude.agent.app.model import ModelChoice
from etude.agent.app.saved_sessions import LAST, LISTED, SavedSession, find_session, sessions_in
from etude.agent.app.workspace_access import SandboxMode, WorkspaceAccess
from etude.agent.harness.approval import ApprovalPolicy
from etude.cli.agent.flags import Flags
from etude.cli.agent.options import CHOOSE
from etude.core.trace.entry import Effort

if TYPE_CHECKING:
    from etude.agent.acp.conversation import EditorSessionOptions

_KEY = "OPENAI_API_KEY"


class Making:
    """Of one command line. Whatever makes no sense raises UsageError."""

    def __init__(self, flags: Flags) -> None:
        self._flags = flags
        self._config, self._file = load_config(flags.config)
        self._folder = flags.folder or Path(".")

    @property
    def walls(self) -> SandboxMode:
        return self._flags.sandbox.value if self._flags.sandbox else self._config.sandbox or "workspace"

    @property
    def approval(self) -> ApprovalPolicy:
        """Without a sandbox, commands need approval by default."""
        named = self._flags.approval.value if self._flags.approval else self._config.approval
        return named or ("commands" if self.walls == "none" else "never")

    @cached_property
    def wanted(self) -> ExtensionOptions:
        config, flags = self._config, self._flags
        own = str(self._file.absolute()) if config.mcp else ""
        index, mcp = config.index.on and not flags.no_index, not flags.no_mcp
        return ExtensionOptions(index=index, mcp=mcp, search=config.web.search, config=own, signals=config.signals.on)

    def session(self, choose: Callable[[list[str]], int | None] | None) -> Path | None:
        """Return the session to resume. `choose` asks the user for one of these lines; None means that there is no terminal."""
        named = LAST if self._flags.go_on else self._flags.resume
        if named is None:
            return None
        if named != CHOOSE:
            return find_session(named, self._folder)[0]
        found = sessions_in(self._folder)[:LISTED]
        if not found:
            raise UsageError(f"no session worked in {self._folder} yet; begin one, or name one of `etude session list`")
        if choose is None:
            raise UsageError(
                f"--resume needs an ID or `last` if there is no terminal to choose at; the last one here is {_first(found)}"
            )
        number = choose([one.line for one in found])
        if number is None:
            raise UsageError("none of these was chosen")
        return found[number].file

    def job(self, request: str, session: Path | None) -> AgentJob:
        place = WorkspaceAccess.validated(self._folder, self.walls, self._flags.network)
        ask = SessionStart(request, tuple(shlex.split(self._flags.test or "")))
        return AgentJob(ask, self._choice(session), place, self.approval, self.wanted, session)

    def setup(self) -> EditorSessionOptions:
        """Of an ACP server: the editor gives folder and requests."""
        from etude.agent.acp.conversation import EditorSessionOptions
        from etude.agent.app.model import open_model

        flags = self._flags
        editors = {
            "--prompt": flags.prompt, "--folder": flags.folder, "--resume": flags.resume, "--continue": flags.go_on,
            "--background": flags.background, "--test": flags.test, "--json": flags.json,
        }  # fmt: skip
        if strange := [name for name, value in editors.items() if value]:
            raise UsageError(
                f"--acp serves an editor, which gives folder, sessions and requests: leave out {', '.join(strange)}"
            )
        if flags.network and self.walls == "none":
            raise UsageError("--network opens a sandbox' network; with --sandbox none there is no sandbox")
        choice = self._choice(None)
        return EditorSessionOptions(
            choice, lambda: open_model(choice), self.walls, flags.network, self.approval, self.wanted
        )

    def _choice(self, session: Path | None) -> ModelChoice:
        """The model and how it is asked. What the file says of its model holds for that model alone: a key and a name belong to an
        endpoint. A session goes on with its own."""
        flags, config = self._flags, self._config
        effort = cast(Effort | None, flags.effort.value if flags.effort else None)
        if flags.model is None and session is not None:
            kept = choice_of(find_session(session.stem, self._folder)[1])
            return replace(
                kept,
                effort=effort or kept.effort,
                max_turns=flags.max_turns or kept.max_turns,
                context=flags.context or kept.context,
                omit=tuple(flags.omit or kept.omit),
                max_tokens_field=flags.max_tokens_field or kept.max_tokens_field,
            )
        model = flags.model or config.model
        if model is None:
            raise UsageError(
                "no model: give --model URL [--name NAME] (any OpenAI-compatible endpoint) or --model DIR (a checkpoint), "
                f"set ETUDE_MODEL, or write model = … into {self._file}"
            )
        own = config if model == config.model else None
        preset = flags.preset or (own.preset if own else None)
        return ModelChoice(
            model,
            flags.name or (own.name if own else None),
            flags.key_env or (own.key_env if own else None) or _KEY,
            preset,
            effort or config.effort or "medium",
            flags.max_turns or config.max_turns,
            tuple(flags.omit or (own.omit if own else ())),
            flags.context or (own.context if own else None),
            flags.max_tokens_field or (own.max_tokens_field if own else None),
        )


def _first(found: list[SavedSession]) -> str:
    return found[0].header.session_id
