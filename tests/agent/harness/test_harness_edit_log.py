"""Edits from the workspace's journal become entries after their call, one per file."""

from __future__ import annotations

import asyncio

import pytest

from etude.agent.harness.edits.edit_log import EditLog
from etude.agent.metrics.of_session import changes_of
from etude.core.trace.entry import SessionHeader
from etude.core.trace.schema import objections
from etude.core.trace.session import Recorder


class Scene:
    """A log with the recorder that it tells."""

    def __init__(self) -> None:
        self.recorder = Recorder(SessionHeader("s"))
        self.log = EditLog(self.recorder)

    def answer(self, call_id: str) -> list[int]:
        return self.log.record_changes(call_id, self.log.changes(call_id))

    @property
    def recorded_edits(self) -> list[tuple]:
        return [
            (e.data["call_id"], e.data["path"], e.data["kind"], e.data["added"], e.data["removed"])
            for e in self.recorder.session.entries
        ]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_an_edit_in_several_steps_is_one_entry_and_one_that_came_to_nothing_is_none(scene: Scene) -> None:
    scene.log.begin("c1")
    scene.log("a.py", b"one\n", b"two\n")
    scene.log("a.py", b"two\n", b"two\nthree\n")
    scene.log("b.py", None, b"x\n")
    scene.log("b.py", b"x\n", None)
    scene.log("picture", b"\xff\x00", b"\xfe\x00")
    assert scene.answer("c1") == [0]
    assert scene.recorded_edits == [("c1", "a.py", "change", 2, 1)]
    assert objections(scene.recorder.session.entries[0].to_json()) == []
    assert changes_of(scene.recorder.session).size() == (1, 2, 1)


def test_calls_one_after_another_do_not_share_their_edits(scene: Scene) -> None:
    for number, (before, after) in enumerate([(None, b"x\n"), (b"x\n", b"y\n")]):
        scene.log.begin(f"c{number}")
        scene.log("a.py", before, after)
        scene.answer(f"c{number}")
    assert [(call, kind) for call, _, kind, _, _ in scene.recorded_edits] == [("c0", "create"), ("c1", "change")]
    assert scene.answer("c1") == []


async def test_calls_side_by_side_keep_their_edits_apart(scene: Scene) -> None:
    turn = asyncio.Barrier(2)

    async def edit(call_id: str, path: str) -> None:
        scene.log.begin(call_id)
        await turn.wait()
        scene.log(path, None, b"x\n")
        await turn.wait()
        await asyncio.gather(asyncio.create_task(deeper(f"{path}.2")))

    async def deeper(path: str) -> None:
        await turn.wait()
        scene.log(path, None, b"y\n")

    await asyncio.gather(edit("c0", "a"), edit("c1", "b"))
    scene.answer("c1")
    scene.answer("c0")
    assert [(call, path) for call, path, *_ in scene.recorded_edits] == [
        ("c1", "b"),
        ("c1", "b.2"),
        ("c0", "a"),
        ("c0", "a.2"),
    ]
