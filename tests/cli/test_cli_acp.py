"""`etude agent --acp`: what is wrong with its options is said before anything is served, and an editor drives it as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import acp
import pytest
from acp.schema import FileSystemCapabilities
from here import Here

PROGRAM = "import sys; sys.argv[0] = 'etude'; from etude.cli.main import main; main()"


def environment(home: Path) -> dict[str, str]:
    own = {"ETUDE_SESSIONS": "sessions", "XDG_CACHE_HOME": "cache", "XDG_CONFIG_HOME": "config"}
    paths = os.pathsep.join(path for path in sys.path if path)
    return {"PYTHONPATH": paths, "PATH": os.environ["PATH"], **{name: str(home / place) for name, place in own.items()}}


def run(home: Path, *words: str, stdout: object = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, "agent", "--acp", *words]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment(home)
    )  # pyright: ignore


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-m", "m", "--preset", "yolo"), "Invalid value for '--preset': 'yolo' is none of nano,"),
        (("-m", "m", "--approval", "yolo"), "'yolo' is not one of"),
        (("-m", "m", "--config", "no/such.toml"), "there is no settings file no/such.toml"),
        (("-m", "m", "-p", "hello", "--resume", "last"), "leave out --prompt, --resume"),
        (("-m", "m", "--network", "--sandbox", "none"), "there is no sandbox"),
        ((), "no model"),
    ],
)
def test_a_bad_option_is_one_line_with_the_remedy(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("ETUDE_MODEL", raising=False)
    monkeypatch.delenv("ETUDE_CONFIG", raising=False)
    done = here("agent", "--acp", *words)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_a_file_is_no_editor(tmp_path: Path) -> None:
    with open(tmp_path / "out", "w") as file:
        done = run(tmp_path, "-m", "m", stdout=file)
    assert done.returncode == 2 and "an editor starts this command" in done.stderr and "Traceback" not in done.stderr


async def test_a_model_that_is_not_there_is_reported_to_the_editor_which_may_try_again(tmp_path: Path) -> None:
    words = (sys.executable, "-c", PROGRAM, "agent", "--acp", "-m", "http://127.0.0.1:9/v1")
    async with acp.spawn_agent_process(
        object(), *words, env=environment(tmp_path), transport_kwargs={"stderr": None}
    ) as (agent, _):  # pyright: ignore
        await agent.initialize(
            acp.PROTOCOL_VERSION, client_capabilities=acp.schema.ClientCapabilities(fs=FileSystemCapabilities())
        )
        for _ in range(2):
            with pytest.raises(acp.RequestError, match="no endpoint at http://127.0.0.1:9/v1"):
                await agent.new_session(cwd=str(tmp_path))


@pytest.mark.nightly
@pytest.mark.walls
@pytest.mark.usefixtures("own_cache")
async def test_a_checkpoint_serves_an_editor_too(tmp_path: Path) -> None:
    """The same model opening as everywhere: the laptop model, its engine in the server's process."""

    class Editor:
        def __init__(self) -> None:
            self.kinds: list[str] = []

        async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
            self.kinds.append(update.session_update)

    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "shop.py").write_text("def total(items):\n    return -sum(items)\n")
    checkpoint = Path(__file__).parents[2] / "checkpoints" / "sft-nano"
    words = (sys.executable, "-c", PROGRAM, "agent", "--acp", "-m", str(checkpoint), "--max-turns", "2")
    editor = Editor()
    async with acp.spawn_agent_process(  # pyright: ignore
        editor, *words, env={**environment(tmp_path), "OMP_NUM_THREADS": "1"}, transport_kwargs={"stderr": None}
    ) as (agent, _):
        await agent.initialize(acp.PROTOCOL_VERSION)
        session = await agent.new_session(cwd=str(folder))
        answer = await agent.prompt(session.session_id, [acp.text_block("fix shop")])
    assert answer.stop_reason in ("end_turn", "max_turn_requests", "max_tokens")
    assert {"tool_call", "agent_message_chunk"} & set(editor.kinds)
    assert (tmp_path / "sessions" / f"{session.session_id}.tokens").exists()
