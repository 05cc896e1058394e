"""`etude agent -p`: real processes against a real endpoint, in a real folder, in the sandbox and without."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Callable

import pytest
from app_lab import COMMAND, SHOP, fixer, git, parrot, serving, turns

from etude.agent.git_links.home import session_files
from etude.core.trace.reader import read_session

Etude = Callable[..., Any]


@pytest.mark.parametrize("walls", [pytest.param("workspace", marks=pytest.mark.walls), "none"])
def test_a_request_is_carried_out_and_the_answer_alone_is_on_stdout(
    walls: str, shop: Path, homes: Path, etude: Etude
) -> None:
    (shop / "AGENTS.md").write_text("Always add tests.")
    with serving(fixer) as lab:
        done = etude("agent", "-p", "fix total", "-m", lab.url, "--sandbox", walls, "--approval", "never", folder=shop)
    assert (done.code, done.out) == (0, "Fixed the sign in shop.py.\n")
    assert (shop / "shop.py").read_text() == SHOP.replace("-=", "+=")
    assert "→ read_file(shop.py)" in done.err and "+        out += x" in done.err and "\x1b" not in done.err
    system = lab.asked[0]["messages"][0]["content"]
    assert f"workspace: {shop}" in system and "branch main" in system and "Always add tests." in system
    assert "3" in lab.asked[3]["messages"][-1]["content"]
    (file,) = session_files(homes)
    session = read_session(file)
    assert session.header.facts["workspace"] == str(shop) and session.of("end")[0].data["reason"] == "message"


@pytest.mark.parametrize("walls", [pytest.param("workspace", marks=pytest.mark.walls), "none"])
def test_instructions_that_lead_out_of_the_repository_are_reported_and_never_sent(
    walls: str, shop: Path, tmp_path: Path, etude: Etude
) -> None:
    (tmp_path / "private").write_text("PRIVATE KEY")
    (shop / "AGENTS.md").symlink_to(tmp_path / "private")
    (shop / ".mcp.json").symlink_to(tmp_path / "private")
    with serving(lambda messages: {"text": "done"}) as lab:
        done = etude("agent", "--json", "-p", "go", "-m", lab.url, "--sandbox", walls, folder=shop)
    assert done.code == 0 and "PRIVATE" not in str(lab.asked) + done.out + done.err
    notices = [event["message"] for event in done.events if event["type"] == "notice"]
    assert all(any(name in line and "leads out" in line for line in notices) for name in ("AGENTS.md", ".mcp.json"))


@pytest.mark.walls
def test_json_is_a_stream_of_events_with_the_names_of_codex(shop: Path, etude: Etude) -> None:
    with serving(fixer) as lab:
        done = etude("agent", "--json", "-p", "fix total", "-m", lab.url, folder=shop)
    kinds = [event["type"] for event in done.events]
    assert kinds[:2] == ["thread.started", "turn.started"] and kinds[-1] == "turn.completed"
    assert done.events[-1]["usage"] == {"input_tokens": 400, "cached_input_tokens": 0, "output_tokens": 80}
    assert done.events[-1]["message"] == "Fixed the sign in shop.py."
    assert [item["text"] for item in done.items("reasoning")] == ["Look first."]
    (command,) = done.items("command_execution")
    assert command["status"] == "completed" and "3" in command["output"]
    (change,) = done.items("file_change")
    assert (change["path"], change["kind"], change["added"], change["removed"]) == ("shop.py", "update", 1, 1)
    assert "-        out -= x\n+        out += x" in change["diff"]
    started = {e["item"]["id"] for e in done.events if e["type"] == "item.started"}
    completed = {e["item"]["id"] for e in done.events if e["type"] == "item.completed"}
    assert started <= completed
    pieces = [e["item"]["delta"] for e in done.events if e["type"] == "item.updated"]
    assert "".join(pieces).endswith("Fixed the sign in shop.py.") and len(pieces) > 6


@pytest.mark.walls
def test_a_broken_stream_is_reported_as_void_and_the_turn_is_whole(shop: Path, etude: Etude) -> None:
    with serving(lambda messages: {"text": "one two three four five"}, break_streams=1) as lab:
        done = etude("agent", "--json", "-p", "count", "-m", lab.url, folder=shop)
    updates = [e["item"] for e in done.events if e["type"] == "item.updated"]
    at = next(i for i, item in enumerate(updates) if item.get("restarted"))
    assert "".join(item["delta"] for item in updates[at + 1 :]) == "one two three four five"
    assert len(lab.asked) == 2 and done.code == 0


@pytest.mark.parametrize(
    ("words", "variables", "code", "said"),
    [
        (["-m", "http://127.0.0.1:9/v1"], {}, 3, "no endpoint at http://127.0.0.1:9/v1"),
        ([], {}, 2, "no model: give --model URL"),
        (["-m", "URL"], {}, 3, "OPENAI_API_KEY is not set"),
        (["-m", "URL"], {"OPENAI_API_KEY": "wrong"}, 3, "the key in OPENAI_API_KEY is refused"),
        (["-m", "URL", "-C", "nowhere"], {"OPENAI_API_KEY": "right"}, 2, "nowhere is no folder"),
        (["-m", "nowhere"], {}, 2, "neither an address (http://…/v1) nor a checkpoint directory"),
        (["-m", "URL", "--resume", "nothing"], {"OPENAI_API_KEY": "right"}, 2, "no session is called 'nothing'"),
        (["-m", "URL", "--network", "--sandbox", "none"], {"OPENAI_API_KEY": "right"}, 2, "there is no sandbox"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_with_the_remedy(
    words: list[str], variables: dict[str, str], code: int, said: str, shop: Path, etude: Etude
) -> None:
    with serving(parrot, key="right") as lab:
        given = [lab.url if word == "URL" else word for word in words]
        done = etude("agent", "--json", "-p", "hi", *given, folder=shop, **variables)
    assert done.code == code and [event["type"] for event in done.events] == ["error"]
    assert done.err.startswith("error: ") and said in done.err and done.err.count("\n") == 1


@pytest.mark.walls
def test_no_request_and_no_terminal_says_how_to_give_one(shop: Path, etude: Etude) -> None:
    with serving(parrot) as lab:
        empty = etude("agent", "-m", lab.url, folder=shop)
        piped = etude("agent", "-m", lab.url, folder=shop, stdin="from a pipe\n")
    assert empty.code == 2 and "no request" in empty.err
    assert (piped.code, piped.out) == (0, "heard: from a pipe\n")


@pytest.mark.walls
def test_a_folder_without_git_is_fine_and_said(tmp_path: Path, homes: Path, etude: Etude) -> None:
    folder = tmp_path / "bare"
    folder.mkdir()
    with serving(parrot) as lab:
        done = etude("agent", "-p", "hi", "-m", lab.url, folder=folder)
    assert done.code == 0 and "repository: none (no git)" in lab.asked[0]["messages"][0]["content"]


@pytest.mark.walls
def test_out_of_turns_is_exit_status_1(shop: Path, etude: Etude) -> None:
    with serving(lambda messages: {"calls": [("list_dir", {"target_directory": "."})]}) as lab:
        done = etude("agent", "-p", "go", "-m", lab.url, "--max-turns", "2", folder=shop)
    assert done.code == 1 and "used up its turns" in done.err and len(lab.asked) == 2


@pytest.mark.nightly
@pytest.mark.walls
def test_a_hanging_command_is_stopped_by_ctrl_c_and_the_session_ends_well(shop: Path, homes: Path) -> None:
    def hangs(messages: list[dict[str, Any]]) -> dict[str, Any]:
        return {"calls": [("run_terminal_cmd", {"command": "sleep 50"})]}

    with serving(hangs) as lab:
        words = ["agent", "-p", "wait", "-m", lab.url]
        running = subprocess.Popen([*COMMAND, *words], cwd=shop, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        _until(lambda: homes.exists() and any("completion" in f.read_text() for f in homes.glob("*.jsonl")))
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=20)
    (file,) = session_files(homes)
    session = read_session(file)
    assert running.returncode == 130 and session.of("end")[0].data["reason"] == "stopped"
    assert "stopped" in session.of("tool_result")[0].data["text"]


@pytest.mark.walls
def test_a_killed_session_is_gone_on_with_and_its_open_call_is_answered(shop: Path, homes: Path, etude: Etude) -> None:
    def play(messages: list[dict[str, Any]]) -> dict[str, Any]:
        if messages[-1]["content"] == "go on":
            return {"text": f"before: {messages[-2]['content'][:11]}"}
        return {"calls": [("run_terminal_cmd", {"command": "sleep 50"})]}

    with serving(play) as lab:
        running = subprocess.Popen(
            [*COMMAND, "agent", "-p", "wait", "-m", lab.url], cwd=shop, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        _until(lambda: homes.exists() and any("completion" in f.read_text() for f in homes.glob("*.jsonl")))
        os.kill(running.pid, signal.SIGKILL)
        running.communicate(timeout=20)
        done = etude("agent", "--continue", "-p", "go on", folder=shop)
    assert (done.code, done.out) == (0, "before: interrupted\n")
    assert len(session_files(homes)) == 1


@pytest.mark.walls
def test_a_session_goes_on_with_its_model_and_another_effort(shop: Path, homes: Path, etude: Etude) -> None:
    with serving(parrot) as lab:
        etude("agent", "-p", "first", "-m", lab.url, folder=shop)
        done = etude("agent", "--resume", "last", "-p", "second", "--effort", "high", folder=shop)
        said = [message["content"] for message in lab.asked[-1]["messages"][1:]]
    assert done.out == "heard: second\n" and said == ["first", "heard: first", "second"]
    assert "reasoning_effort" not in lab.asked[0] and lab.asked[1]["reasoning_effort"] == "high"
    refused = etude("agent", "--resume", "-p", "third", folder=shop)
    (file,) = session_files(homes)
    assert [entry.data for entry in read_session(file).of("effort")] == [{"effort": "high"}]
    assert refused.code == 2 and f"the last one here is {file.stem}" in refused.err


@pytest.mark.walls
def test_the_sandbox_keeps_the_rest_of_the_machine_and_the_repositorys_own_data(
    shop: Path, tmp_path: Path, etude: Etude
) -> None:
    outside = tmp_path / "outside"
    command = f"echo x > {outside}; echo x > .git/hooks/post-commit; echo x > inside; echo $SOME_API_KEY; ls {tmp_path}/sessions"

    def play(messages: list[dict[str, Any]]) -> dict[str, Any]:
        return {"text": "done"} if turns(messages) else {"calls": [("run_terminal_cmd", {"command": command})]}

    with serving(play) as lab:
        etude("agent", "-p", "try", "-m", lab.url, folder=shop, SOME_API_KEY="hush")
        seen = lab.asked[1]["messages"][-1]["content"]
    assert (shop / "inside").exists() and not outside.exists() and not (shop / ".git/hooks/post-commit").exists()
    assert "hush" not in seen and ".jsonl" not in seen


@pytest.mark.walls
def test_undo_puts_back_the_last_request_and_refuses_what_changed_since(shop: Path, homes: Path, etude: Etude) -> None:
    with serving(fixer) as lab:
        etude("agent", "-p", "fix total", "-m", lab.url, folder=shop)
    fixed = (shop / "shop.py").read_text()
    (shop / "shop.py").write_text(fixed + "# mine\n")
    refused = etude("agent", "--undo", "last", folder=shop)
    assert refused.code == 2 and "changed since the agent's edit: shop.py" in refused.err
    (shop / "shop.py").write_text(fixed)
    done = etude("agent", "--undo", "last", folder=shop)
    assert (done.code, done.out) == (0, "took back shop.py\n") and (shop / "shop.py").read_text() == SHOP
    (file,) = session_files(homes)
    session = read_session(file)
    (undone,) = session.of("undo")
    assert undone.data == {"edits": [session.of("edit")[0].id], "paths": ["shop.py"], "by": "user"}
    assert "no edits" in etude("agent", "--undo", "last", folder=shop).err
    assert git(shop, "status", "--porcelain") == ""


def _until(true: Callable[[], bool]) -> None:
    for _ in range(300):
        if true():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come to pass in 30 s")


@pytest.mark.walls
def test_forgetting_a_session_takes_what_undo_kept_along(shop: Path, homes: Path, etude: Etude) -> None:
    with serving(fixer) as lab:
        etude("agent", "-p", "fix total", "-m", lab.url, folder=shop)
    (file,) = session_files(homes)
    assert {path.name.removeprefix(file.stem) for path in homes.iterdir()} == {".jsonl", ".undo.jsonl", ".undo"}
    assert etude("session", "forget", file.stem, folder=shop).code == 0
    assert list(homes.iterdir()) == []


@pytest.mark.walls
def test_the_laptop_checkpoint_answers_in_process_with_the_harness_it_was_trained_in(
    shop: Path, homes: Path, etude: Etude
) -> None:
    from etude.agent.chat.load import load_renderer
    from etude.agent.harness.presets.preset import harness_hash
    from etude.agent.harness.settings import HarnessSettings

    checkpoint = Path(__file__).parents[3] / "checkpoints" / "sft-nano"
    done = etude("agent", "-p", "fix shop", "-m", str(checkpoint), "--test", "true", folder=shop)
    assert done.code in (0, 1), done.err
    (file,) = session_files(homes)
    session = read_session(file)
    assert session.header.takes_tokens and all(segment.sampled.any() for segment in session.segments())
    assert session.header.harness == harness_hash(HarnessSettings(), load_renderer(checkpoint).fingerprint)
    other = etude("agent", "-p", "x", "-m", str(checkpoint), "--preset", "patch", folder=shop)
    assert other.code == 2 and "takes --preset nano, not patch" in other.err


@pytest.mark.walls
def test_a_local_checkpoint_is_heard_while_it_writes(shop: Path, etude: Etude) -> None:
    checkpoint = Path(__file__).parents[3] / "checkpoints" / "sft-nano"
    done = etude("agent", "-p", "fix shop", "-m", str(checkpoint), "--test", "true", "--json", folder=shop)
    drafts = [e["item"] for e in done.events if e.get("item", {}).get("type") == "call_draft"]
    first = [item for item in drafts if item["id"] == drafts[0]["id"]]
    pieces = [item["delta"] for item in first if "delta" in item]
    assert len(pieces) > 1 and "delta" not in first[-1]
    called = next(e["item"] for e in done.events if e.get("item", {}).get("type") in ("tool_call", "command_execution"))
    assert "".join(pieces) == f"<|{called['name']}|>" + "<|arg|>".join(called["arguments"].values())


@pytest.mark.walls
def test_a_binary_file_is_reported_and_never_shown(shop: Path, etude: Etude) -> None:
    (shop / "logo.png").write_bytes(bytes(range(256)) * 10)

    def play(messages: list[dict[str, Any]]) -> dict[str, Any]:
        return {"text": "ok"} if turns(messages) else {"calls": [("read_file", {"target_file": "logo.png"})]}

    with serving(play) as lab:
        etude("agent", "-p", "look", "-m", lab.url, folder=shop)
    assert "takes UTF-8 text only" in lab.asked[1]["messages"][-1]["content"]


def test_an_answer_that_was_cut_off_is_continued_and_the_third_in_a_row_fails(shop: Path, etude: Etude) -> None:
    cut = {"text": "The total is", "finish": "length"}

    def once(messages: list[dict[str, Any]]) -> dict[str, Any]:
        return {"text": "wrong."} if messages[-1]["content"].startswith("your answer") else cut

    with serving(once) as lab:
        done = etude("agent", "-p", "go", "-m", lab.url, "--sandbox", "none", "--no-index", folder=shop)
    assert (done.code, len(lab.asked)) == (0, 2)
    assert "your answer was cut off at" in lab.asked[1]["messages"][-1]["content"]
    with serving(lambda messages: cut) as lab:
        done = etude("agent", "--json", "-p", "go", "-m", lab.url, "--sandbox", "none", "--no-index", folder=shop)
    assert (done.code, len(lab.asked)) == (1, 3) and done.events[-1]["error"]["reason"] == "no_answer"


@pytest.mark.parametrize("turn", [{"text": ""}, {"text": "", "thinking": "I could call a tool"}])
def test_an_empty_turn_is_no_answer_and_the_exit_status_says_so(shop: Path, etude: Etude, turn: dict[str, str]) -> None:
    with serving(lambda messages: turn) as lab:
        done = etude("agent", "--json", "-p", "go", "-m", lab.url, "--sandbox", "none", "--no-index", folder=shop)
    assert (done.code, len(lab.asked)) == (1, 2)
    assert done.events[-1]["error"]["reason"] == "no_answer" and len(done.items("malformed")) == 2
