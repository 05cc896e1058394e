"""A small repository, sessions that repair it with the real harness, and where tests of suites run."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from etude.agent.harness.agent import build_agent
from etude.agent.harness.dependencies import AgentDependencies
from etude.agent.harness.header import session_header
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.writer import SessionWriter
from etude.evaluate.bench.suites.environment import Equipment
from etude.evaluate.bench.suites.manifest import SuiteEnvironment
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.spec import SandboxSpec
from etude.tasks.graders.commands import CommandsGrader
from etude.tasks.running.pin import default_cache
from etude.tasks.validation.change import GradingContext

REQUEST = "the tally is off by one, ask jane.doe@acme-tools.io if unsure"
BROKEN = "def tally(items):\n    return len(items) - 1\n\n\ndef other():\n    return 'as before'\n"
FIXED = BROKEN.replace("len(items) - 1", "len(list(items))")
OLD_TEST = "from core import other\n\n\ndef test_other():\n    assert other() == 'as before'\n"
NEW_TEST = OLD_TEST + "\n\ndef test_tally():\n    import core\n    assert core.tally([1, 2]) == 2\n"
REPAIR: dict[str, str | bytes] = {"tests/test_core.py": NEW_TEST}
BASE: dict[str, str | bytes] = {"core.py": BROKEN, "tests/test_core.py": OLD_TEST, "data.bin": b"\0\1", "dist/x": "old"}


class Shop:
    """A git repository whose first commit is broken, and a folder of sessions."""

    def __init__(self, folder: Path) -> None:
        self.root, self.home = folder / "shop", folder / "home"
        self.root.mkdir()
        self.home.mkdir()
        self.git("init", "-q", "-b", "main")
        self.base = self.commit(BASE)

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", "-C", str(self.root), *who, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, files: dict[str, str | bytes]) -> str:
        for path, content in files.items():
            place = self.root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content.encode() if isinstance(content, str) else content)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "work")
        return self.git("rev-parse", "HEAD")

    async def session(
        self, name: str, pool: SandboxPool, request: str = REQUEST, new: str = "len(list(items))"
    ) -> Path:
        """The harness with a scripted policy repairs `core.py` in a sandbox; the folder then holds what it left."""
        words = {"file_path": "core.py", "old_string": "len(items) - 1", "new_string": new}
        turns = [
            Message("assistant", "", calls=(ToolCall("a", "search_replace", words),)),
            Message("assistant", "It counts right now."),
        ]
        settings, policy = HarnessSettings.full(preset="search_replace", lint_delta_s=0.0), ScriptedPolicy(turns)
        facts = TaskFacts("", request)
        header = session_header(settings, policy, facts, session_id=name)
        header = replace(header, facts={**header.facts, "workspace": str(self.root)})
        recorder = SessionWriter(self.home / f"{name}.jsonl", header, every="line")
        sandbox = await pool.create(SandboxSpec(files={"core.py": (self.root / "core.py").read_bytes()}))
        try:
            await build_agent(settings, policy, AgentDependencies(sandbox, facts, recorder=recorder)).run()
            (self.root / "core.py").write_bytes(await sandbox.read("core.py"))
        finally:
            await sandbox.kill()
            recorder.close()
        return recorder.path


def bench_in(pool: SandboxPool, folder: Path) -> GradingContext:
    """The pinned pytest, in real sandboxes."""
    environment = SuiteEnvironment.model_validate({"pytest": True})
    equipment = Equipment(environment, folder, default_cache())
    equipment.prepare()
    return GradingContext(pool, CommandsGrader(lambda spec, task: equipment.fit(spec, task.id, task.metadata)), 60.0)
