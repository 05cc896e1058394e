"""The board answers only its own page on loopback, follows a run, and survives whatever the run's files hold."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etude.core.trace.entry import EntryTokens, SessionHeader
from etude.core.trace.session import Recorder
from etude.core.trace.writer import write_session
from etude.evaluate.report.board import server
from etude.evaluate.report.board.server import Board, Connections, in_background
from etude.evaluate.report.collect import NotARun

EVIL = "</pre><script>alert(1)</script>"


@contextmanager
def served(run: Path) -> Iterator[Board]:
    board = Board(run)
    thread = in_background(board)
    try:
        yield board
    finally:
        board.close()
        thread.join(10)
        assert not thread.is_alive()


def ask(board: Board, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", board.port, timeout=20)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


def read(board: Board, path: str) -> dict:
    status, body, _ = ask(board, path)
    assert status == 200, body
    return json.loads(body)


def followed(board: Board, until: Callable[[dict], bool]) -> dict:
    """The first state of the stream for which `until` holds."""
    connection = http.client.HTTPConnection("127.0.0.1", board.port, timeout=60)
    try:
        connection.request("GET", "/api/follow")
        answer = connection.getresponse()
        while True:
            line = answer.readline()
            assert line, "the stream ended"
            if line.startswith(b"data: ") and until(state := json.loads(line[6:])):
                return state
    finally:
        connection.close()


def ready(board: Board) -> dict:
    return followed(board, lambda state: bool(state["ready"]))


def test_the_page_and_its_parts_come_from_the_package(tmp_path: Path, make_run: Callable) -> None:
    with served(make_run(tmp_path)) as board:
        status, body, headers = ask(board, "/")
        assert status == 200 and b"/static/app.js" in body
        assert (
            "default-src 'none'" in headers["Content-Security-Policy"]
            and "script-src 'self'" in headers["Content-Security-Policy"]
        )
        for name in ("app.js", "board.css", "plot.css", "page.css", "filter.js"):
            assert ask(board, f"/static/{name}")[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
        {"Host": "127.0.0.1:1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_another_site_s_page_is_refused_and_reported_why(
    tmp_path: Path, make_run: Callable, headers: dict[str, str]
) -> None:
    with served(make_run(tmp_path, groups=1)) as board:
        for path in ("/", "/api/rollouts", "/api/follow"):
            status, body, _ = ask(board, path, **headers)
            assert status == 403 and b"board" in body


def test_its_own_page_and_a_typed_address_are_answered(tmp_path: Path, make_run: Callable) -> None:
    with served(make_run(tmp_path, groups=1)) as board:
        own = f"http://localhost:{board.port}"
        assert ask(board, "/", Host=f"localhost:{board.port}", Origin=own, Sec_Fetch_Site="same-origin")[0] == 200
        assert ask(board, "/", Sec_Fetch_Site="none")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/../recipe.toml",
        "/recipe.toml",
        "/api/rollout/..",
        "/api/x",
    ],
)
def test_no_path_reaches_the_disk(tmp_path: Path, make_run: Callable, path: str) -> None:
    with served(make_run(tmp_path, groups=1)) as board:
        assert ask(board, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(tmp_path: Path, make_run: Callable, method: str) -> None:
    with served(make_run(tmp_path, groups=1)) as board:
        assert ask(board, "/api/rollouts", method)[0] == 501


def test_what_comes_while_somebody_follows_reaches_the_stream(tmp_path: Path, make_run: Callable) -> None:
    with served(make_run(tmp_path, groups=4, trained=0)) as board:
        before = ready(board)
        make_run(tmp_path, groups=5, trained=4)
        after = followed(board, lambda s: len(board.follower.index) == 20 and s["curves"] > before["curves"])
        assert after["rollouts"] > before["rollouts"]


def test_an_attempt_has_its_tokens_with_all_that_is_known_of_them(tmp_path: Path, make_run: Callable) -> None:
    with served(make_run(tmp_path, groups=4)) as board:
        ready(board)
        found = read(board, "/api/rollout/3")
        assert len(found["segments"]) == 2 and found["kept"] is False and found["vocabulary"] is True
        for segment in found["segments"]:
            assert len(segment["words"]) == len(segment["sampled"])
            assert (
                sum(segment["sampled"]) == len(segment["logprobs"]) == len(segment["versions"]) == len(segment["gaps"])
            )
        assert sum(found["parts"].values()) == pytest.approx(found["reward"], abs=1e-6)
        text = "".join(found["transcript"])
        assert "self-summary" in text and text.count("turn ") == sum(
            a < b for s in found["segments"] for a, b in zip([0, *s["sampled"]], s["sampled"], strict=False)
        )


def test_a_kept_session_is_its_transcript_and_its_words_are_no_markup(tmp_path: Path, make_run: Callable) -> None:
    make_run(tmp_path, groups=1)
    recorder = Recorder(SessionHeader("s", task_id=EVIL))
    root = recorder.append("message", {"role": "user", "text": EVIL}, tokens=EntryTokens([0, 1], 2))
    call = {"id": "c", "name": "edit", "arguments": {"path": EVIL, "old": "a\n" + EVIL, "new": "a\nb"}}
    said = {"message": {"role": "assistant", "text": "", "calls": [call]}}
    recorder.append("completion", said, parent=root, tokens=EntryTokens([2, 1], 0, [-0.5, -0.1], [0, 0]))
    folder = tmp_path / "rl" / "sessions" / "step-000"
    folder.mkdir()
    write_session(folder / "000000-0.jsonl", recorder.session)
    with served(tmp_path) as board:
        ready(board)
        found = read(board, "/api/rollout/0")
        text = "".join(found["transcript"])
        assert found["kept"] and "<script" not in text
        assert '<span class="gone">- &lt;/pre&gt;' in text and '<span class="added">+ b' in text


def test_a_group_that_went_bad_is_said_where_it_is_asked_for(tmp_path: Path, make_run: Callable) -> None:
    with served(make_run(tmp_path, groups=2)) as board:
        ready(board)
        (tmp_path / "rl" / "groups" / "000001.zst").write_bytes(b"bad")
        status, body, _ = ask(board, "/api/rollout/4")
        assert status == 422 and b"DamagedGroup" in body
        assert ask(board, "/api/rollout/999")[0] == 422
        assert ask(board, "/api/rollout/0")[0] == 200


def test_the_machines_pages_tell_faults_by_class_and_the_chain_of_weights(tmp_path: Path, make_run: Callable) -> None:
    make_run(tmp_path, groups=8)
    reason = "t#1.0: CapacityExhausted after 4 tries: no room"
    lost = {"policy": "p@low", "task": "t", "attempt": 0, "class": "SandboxLost", "message": "gone"}
    (tmp_path / "faults.jsonl").write_text(json.dumps(lost) + "\n")
    (tmp_path / "rl" / "ledger.jsonl").write_text(
        json.dumps({"kind": "fault", "group": 1, "member": 0, "reason": reason}) + "\n"
    )
    with served(tmp_path) as board:
        ready(board)
        fleet = read(board, "/api/fleet")
        assert fleet["repeated"] == 1 and fleet["phases"]["seconds"]["count"] == 32
        assert {one["class"]: (one["repeated"], one["given_up"]) for one in fleet["faults"]} == {
            "SandboxLost": (1, 1), "CapacityExhausted": (0, 1)
        }  # fmt: skip
        assert [entry["version"] for entry in read(board, "/api/weights")["entries"]] == [0, 1, 2]
        curves = read(board, "/api/curves")
        assert curves["stages"]["rl"]["steps"] == [0, 1] and curves["marks"][0]["step"] == 1


def test_an_old_run_is_named_and_what_it_has_is_shown(tmp_path: Path, make_run: Callable) -> None:
    make_run(tmp_path, groups=2)
    (tmp_path / "report.json").write_text('{"schema": 0}')
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "summary.json").write_text('{"bench": {"sft": {"average": 1}}}')
    with served(tmp_path) as board:
        ready(board)
        found = read(board, "/api/run")
        assert "schema 0" in found["problems"]["report.json"]
        assert any("another form" in why for why in found["problems"].values())
        assert "What it cost" in found["sections"]


def test_no_audit_is_said_and_one_is_listed(tmp_path: Path, make_run: Callable) -> None:
    with served(make_run(tmp_path, groups=1)) as board:
        assert read(board, "/api/audit") == {"files": [], "rows": [], "problems": {}}
        (tmp_path / "audit.jsonl").write_text('{"task_id": "t", "flags": ["tampered"]}\n')
        assert read(board, "/api/audit")["rows"] == [{"task_id": "t", "flags": ["tampered"]}]


def test_a_suite_s_run_shows_what_its_report_has_and_names_what_it_has_not(tmp_path: Path) -> None:
    (tmp_path / "conditions.json").write_text("{}")
    found = {"schema": 1, "kind": "bench", "suite": {"name": "exercises", "version": "1"}, "tasks": 8, "policies": []}
    (tmp_path / "report.json").write_text(json.dumps(found | {"items": {"saturated": ["t/<b>1"]}}))
    with served(tmp_path) as board:
        ready(board)
        run = read(board, "/api/run")
        assert "t/&lt;b&gt;1" in run["sections"]["Tasks"]
        assert {"the policies", "Conditions"} <= run["problems"].keys()  # no seed, nothing strict: of another form


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotARun, match="recipe.toml"):
        Board(tmp_path)


def test_the_fleet_s_page_tells_who_worked_when_and_on_which_host(tmp_path: Path, make_run: Callable) -> None:
    with served(make_run(tmp_path, groups=9)) as board:
        ready(board)
        fleet = read(board, "/api/fleet")
        assert {row["host"]: row["attempts"] for row in fleet["hosts"]} == {"": 24, "b": 12}
        assert sum(row["repeated"] for row in fleet["hosts"]) == fleet["repeated"] == 1
        time = fleet["time"]
        assert time["from_unix_s"] == 1_700_000_000 and time["known"] == 36
        own = time["sources"]["rl"]
        assert sum(own["began"]) == 36
        worked_s = sum(own["live"]) * time["moment_s"]
        assert worked_s == pytest.approx(36 * 3.0, abs=0.1)  # 3 s each: none is lost between two moments


def test_slow_clients_hold_a_bounded_number_of_threads_and_the_page_still_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "events.jsonl").touch()
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 8)
    with served(tmp_path) as board:
        slow = [socket.create_connection(("127.0.0.1", board.port)) for _ in range(40)]
        for connection in slow:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        assert ask(board, "/")[0] == 200
        assert len(board.connections) <= 8
        for connection in slow:
            connection.close()


def test_a_connection_that_waits_is_given_up_for_a_new_one_and_one_at_work_never() -> None:
    pairs = [socket.socketpair() for _ in range(4)]
    held = Connections(2)
    first, second, third, fourth = (pair[0] for pair in pairs)
    assert held.admit(first) and held.admit(second)
    held.working(first)
    assert held.admit(third) and pairs[1][1].recv(1) == b"", "the second one waited longest"
    held.working(third)
    assert not held.admit(fourth), "all others are at work"
    held.waits(first)
    assert held.admit(fourth) and len(held) == 2
    held.working(first)
    assert len(held) == 2, "one that was given up does not come back"
    for one in (first, second, third, fourth):
        held.gone(one)
    assert len(held) == 0
    for one, other in pairs:
        one.close()
        other.close()


def test_a_request_with_two_hosts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").touch()
    with served(tmp_path) as board, socket.create_connection(("127.0.0.1", board.port)) as connection:
        own = f"127.0.0.1:{board.port}"
        connection.sendall(f"GET / HTTP/1.1\r\nHost: {own}\r\nHost: evil.example\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 403")
