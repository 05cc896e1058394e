"""A person's settings: strict, found where the page says, under the flags; keys and names stay with the model they were written for."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from etude.agent.app.config import Config, load_config
from etude.agent.app.errors import UsageError
from etude.cli.agent.flags import Flags
from etude.cli.agent.making import Making
from etude.cli.agent.options import EffortName, Walls

FILE = """
model = "http://127.0.0.1:1/v1"
name = "big"
key_env = "MY_KEY"
preset = "patch"
effort = "high"
approval = "writes"
sandbox = "none"
max_turns = 7
omit = ["temperature"]
context = 32768
[index]
on = false
[web]
search = "http://127.0.0.1:2/search"
[signals]
on = true
[mcp.tickets]
command = "tickets"
env = { TOKEN = "${TICKETS}" }
"""


@pytest.fixture
def file(homes: Path, tmp_path: Path) -> Path:
    place = tmp_path / "config" / "etude" / "agent.toml"
    place.parent.mkdir(parents=True)
    place.write_text(FILE)
    return place


def made(**given: Any) -> Making:
    return Making(Flags(**given))


def test_the_file_counts_where_no_flag_is(file: Path, tmp_path: Path) -> None:
    job = made(folder=tmp_path).job("go", None)
    choice = job.model
    assert (choice.model, choice.name, choice.key_env) == ("http://127.0.0.1:1/v1", "big", "MY_KEY")
    assert (choice.preset, choice.effort, choice.max_turns, choice.omit) == ("patch", "high", 7, ("temperature",))
    assert choice.context == 32768
    assert (job.workspace.sandbox_mode, job.approval) == ("none", "writes")
    wanted = job.extensions
    assert (wanted.index, wanted.mcp, wanted.search, wanted.signals) == (False, True, "http://127.0.0.1:2/search", True)
    assert [server.name for server in wanted.user_servers()] == ["tickets"] and wanted.user_servers()[0].trusted


def test_flags_win_over_the_file(file: Path, tmp_path: Path) -> None:
    job = made(folder=tmp_path, effort=EffortName.low, sandbox=Walls.workspace, max_turns=3, no_mcp=True).job(
        "go", None
    )
    assert (job.model.effort, job.model.max_turns, job.workspace.sandbox_mode, job.extensions.mcp) == (
        "low",
        3,
        "workspace",
        False,
    )


def test_the_key_and_the_name_of_the_files_model_never_go_to_another(file: Path, tmp_path: Path) -> None:
    choice = made(folder=tmp_path, model="http://127.0.0.1:9/v1").job("go", None).model
    assert (choice.key_env, choice.name, choice.preset, choice.omit) == ("OPENAI_API_KEY", None, None, ())
    assert choice.effort == "high"  # the person's, whatever the model


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modle = 'x'", "unknown key 'modle'; known are model, name, key_env"),
        ("[web]\nserach = 'x'", "unknown key 'web.serach'; known are search"),
        ("[web]\nsearch = 'x'", "web.search: no address"),
        ("effort = 'huge'", "effort: Input should be 'low', 'medium' or 'high', not 'huge'"),
        ("max_turns = 0", "max_turns: "),
        ("model = ", "Invalid value"),
        ("[mcp.t]\ncomand = 'x'", "unknown field 'comand'; known are command"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_that_names_it(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError) as error:
        load_config()
    assert message in str(error.value) and str(file) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_in_the_file_is_dropped(file: Path, encoding: str) -> None:
    file.write_bytes("effort = 'low'".encode(encoding))
    assert load_config()[0].effort == "low"


@pytest.mark.parametrize("data", [b"a = " + b"[" * 5000, b"\xff", b"#" * (1 << 20) + b"\n"])
def test_a_file_that_is_no_settings_file_is_one_line(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    with pytest.raises(UsageError, match=str(file)):
        load_config()


def test_no_file_is_fine_and_a_named_one_must_be_there(
    homes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_config()[0] == Config()
    with pytest.raises(UsageError, match="leave out --config"):
        load_config(tmp_path / "mine.toml")
    monkeypatch.setenv("ETUDE_CONFIG", str(tmp_path / "other.toml"))
    with pytest.raises(UsageError, match="leave out ETUDE_CONFIG"):
        load_config()
    (tmp_path / "other.toml").write_text("effort = 'low'")
    assert load_config()[0].effort == "low"


def test_every_flag_has_an_option_of_its_name() -> None:
    from etude.cli.agent.agent import agent

    assert {field.name for field in fields(Flags)} <= set(agent.__annotations__)


def test_a_small_window_is_summed_up_in_time() -> None:
    from etude.agent.app.model import ModelChoice, _large_model_settings

    settings = _large_model_settings(ModelChoice("http://x"), 32768)
    assert (settings.summary_trigger_tokens, settings.max_tokens_per_turn) == (20480, 4096)
    assert _large_model_settings(ModelChoice("http://x"), None).summary_trigger_tokens == 80_000
