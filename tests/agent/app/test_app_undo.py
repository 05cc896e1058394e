"""The undo journal: what it holds after kills, and that undo puts back exactly what was there, or changes nothing."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.agent.app.journal import UndoJournal
from etude.agent.app.undo import UndoError, UndoResult, last_request, undo_edits
from etude.agent.workspace.local_folder import LocalFolder
from etude.agent.workspace.workspace import Workspace
from etude.core.trace.entry import Entry

Step = tuple[str, bytes | None]
STEPS = st.lists(
    st.tuples(st.sampled_from(["a.txt", "b.bin", "d/c.txt"]), st.one_of(st.none(), st.binary(max_size=20))), max_size=8
)


def message(number: int, text: str = "do", delivery: str | None = None) -> Entry:
    return Entry(number, None, "message", 0.0, {"role": "user", "text": text, "delivery": delivery})


class UndoScene:
    """A session that grows, and an agent that edits files of a folder under its journal."""

    def __init__(self, home: Path) -> None:
        self.root = home / "work"
        self.root.mkdir()
        self.entries: list[Entry] = []
        self.journal = UndoJournal(home / "s.jsonl", lambda: len(self.entries))
        self.workspace = Workspace(LocalFolder(self.root), self.journal)

    def ask(self) -> None:
        self.entries.append(message(len(self.entries), delivery="queue" if self.entries else None))

    async def edit(self, path: str, data: bytes | None) -> None:
        if data is not None or await self.workspace.bytes_of(path) is not None:
            await self.workspace.restore(path, data)
            row = {"path": path, "call_id": "c"}
            self.entries.append(Entry(len(self.entries), None, "edit", 0.0, row))

    def files(self) -> dict[str, bytes]:
        return {str(f.relative_to(self.root)): f.read_bytes() for f in self.root.rglob("*") if f.is_file()}

    async def back(self, *, everything: bool = False) -> UndoResult:
        done = await undo_edits(self.journal, self.entries, LocalFolder(self.root), everything=everything)
        self.entries.append(Entry(len(self.entries), None, "undo", 0.0, dict(done.data)))
        return done


@settings(max_examples=25)
@given(first=STEPS, second=STEPS, everything=st.booleans())
def test_undo_puts_back_what_was_there_before_the_request(
    first: list[Step], second: list[Step], everything: bool
) -> None:
    async def play() -> None:
        with tempfile.TemporaryDirectory() as home:
            scene = UndoScene(Path(home))
            seen = []
            for steps in (first, second):
                scene.ask()
                seen.append((scene.files(), len(scene.journal.edits())))
                for path, data in steps:
                    await scene.edit(path, data)
            edited = len(scene.journal.edits())
            if not edited:
                with pytest.raises(UndoError, match="no edits"):
                    await scene.back(everything=everything)
                return
            wanted = seen[0][0] if everything or edited == seen[1][1] else seen[1][0]
            await scene.back(everything=everything)
            assert scene.files() == wanted

    asyncio.run(play())


async def test_undo_again_takes_back_the_request_before(tmp_path: Path) -> None:
    scene = UndoScene(tmp_path)
    for text in (b"one", b"two"):
        scene.ask()
        await scene.edit("a.txt", text)
    second = await scene.back()
    assert scene.files() == {"a.txt": b"one"} and second.edits == [3]
    first = await scene.back()
    assert scene.files() == {} and first.edits == [1]
    with pytest.raises(UndoError, match="no edits"):
        await scene.back()


async def test_one_changed_file_refuses_all_and_is_named(tmp_path: Path) -> None:
    scene = UndoScene(tmp_path)
    scene.ask()
    await scene.edit("a.txt", b"agent")
    await scene.edit("b.bin", b"\xff\x00")
    (scene.root / "b.bin").unlink()
    with pytest.raises(UndoError, match=r"changed since the agent's edit: b\.bin;"):
        await scene.back()
    assert scene.files() == {"a.txt": b"agent"}


async def test_a_torn_line_is_cut_away_and_the_journal_goes_on(tmp_path: Path) -> None:
    scene = UndoScene(tmp_path)
    scene.ask()
    await scene.edit("a.txt", b"one")
    with open(tmp_path / "s.undo.jsonl", "ab") as file:
        file.write(b'{"at": 2, "pa')
    assert [edit.path for edit in scene.journal.edits()] == ["a.txt"]
    await scene.edit("a.txt", b"two")
    assert len(scene.journal.edits()) == 2
    await scene.back()
    assert scene.files() == {}


def test_steering_is_part_of_the_request_it_steers() -> None:
    entries = [message(0), message(1, delivery="steer"), message(2, delivery="queue"), message(3, delivery="steer")]
    assert last_request(entries) == 2 and last_request(entries[:2]) == 0
