"""Search by meaning from inside of a session: it sees its own edits, a person's folder as it is, and errors as whose they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etude.harness.agent import Agent
from etude.harness.code_index import FolderIndex, OverlaidIndex
from etude.harness.local_folder import LocalFolder
from etude.harness.services import Services
from etude.harness.settings import HarnessSettings
from etude.index.errors import ServiceLost
from etude.index.index import Index
from etude.sandbox.protocol import InfraError
from etude.trace.message import Message

Make = Callable[..., Agent]
SETTINGS = HarnessSettings.full(preset="search_replace", codebase_search=True)


@pytest.fixture
def folder(tmp_path: Path, scene: Any) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    for name, text in scene.FILES.items():
        (root / name).write_text(text)
    return root


@pytest.fixture
def index(folder: Path, tmp_path: Path) -> Index:
    found = Index(folder, tmp_path / "store")
    found.update(workers=1)
    return found


def answers(outcome: Any) -> list[str]:
    return [entry.data["text"] for entry in outcome.session.of("tool_result")]


def script(scene: Any) -> list[Message]:
    search = ("codebase_search", {"query": "discount for members"})
    write = ("write", {"file_path": "member.py", "contents": "def member_discount(price):\n    return price * 0.9\n"})
    return [scene.turn(search), scene.turn(write), scene.turn(search), Message("assistant", "found")]


async def test_a_rollout_finds_what_it_wrote_and_the_base_stays_as_it_was(
    agent: Make, index: Index, scene: Any, tmp_path: Path
) -> None:
    place = tmp_path / "rollout"
    place.mkdir()
    mine, other = OverlaidIndex(index.overlay()), OverlaidIndex(index.overlay())
    services = Services(code_index=mine)
    outcome = await agent(
        script(scene), SETTINGS, sandbox=LocalFolder(place), services=services, journal=mine.journal
    ).run()
    before, _, after = answers(outcome)
    assert "member.py" not in before and after.startswith("member.py:1-2 member_discount")
    hits = await other.search("discount for members", limit=5, under=None)
    assert all(hit.path != "member.py" for hit in hits)


async def test_a_persons_folder_is_searched_as_it_is_now(agent: Make, index: Index, folder: Path, scene: Any) -> None:
    services = Services(code_index=FolderIndex(index))
    outcome = await agent(script(scene), SETTINGS, sandbox=LocalFolder(folder), services=services).run()
    assert answers(outcome)[2].startswith("member.py:1-2 member_discount")


async def test_what_cannot_be_asked_is_told_and_a_lost_service_is_ours(agent: Make, index: Index, scene: Any) -> None:
    far = scene.turn(("codebase_search", {"query": "x", "target_directory": "no/such/folder"}))
    outcome = await agent(
        [far, Message("assistant", "ok")], SETTINGS, services=Services(code_index=OverlaidIndex(index.overlay()))
    ).run()
    assert len(answers(outcome)) == 1

    class Gone:
        async def put(self, files: Any) -> dict[str, str]:
            return {}

        async def search(self, query: str, **options: Any) -> list[Any]:
            raise ServiceLost("no service at /nowhere")

    ask = scene.turn(("codebase_search", {"query": "total"}))
    with pytest.raises(InfraError, match="no service"):
        await agent([ask], SETTINGS, services=Services(code_index=OverlaidIndex(Gone()))).run()
