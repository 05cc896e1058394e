"""Search by meaning from inside of a session: it sees its own edits, a person's folder as it is, and errors as whose they are."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.agent.code_index.base import Base
from etude.agent.code_index.bases import Bases
from etude.agent.code_index.errors import ServiceLost
from etude.agent.code_index.hit import Hit
from etude.agent.code_index.index import Index
from etude.agent.code_index.overlay import Overlay
from etude.agent.harness.agent import Agent
from etude.agent.harness.code_index import FolderIndex, OverlaidIndex
from etude.agent.harness.services import AgentServices
from etude.agent.harness.settings import HarnessSettings
from etude.agent.workspace.local_folder import LocalFolder
from etude.core.trace.message import Message
from etude.sandbox.errors import InfraError

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


class Line:
    """An overlay, awaited as the service's client is."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self.sent: list[list[str]] = []

    async def put(self, files: Mapping[str, str | bytes | None]) -> dict[str, str]:
        self.sent.append(sorted(files))
        return self._overlay.put(files)

    async def search(self, query: str, *, limit: int = 10, under: str | None = None) -> list[Hit]:
        return self._overlay.search(query, limit=limit, under=under)


CHANGES = {
    "edit": "echo 'def total(items, tax): return 2' > src/shop.py",
    "add": "echo 'def log_items(): ...' > log.py; echo 'total items' > kept.log",
    "swap": "mv src was; mv other src; mv was other",
    "delete": "rm -rf src",
    "ignore": "echo '/src' > .gitignore",
    "unignore": "rm .gitignore",
    "binary": "printf 'total\\0' > log.py",
    "cache": "touch other/CACHEDIR.TAG",
    "link": "ln -s src/shop.py link.py; ln -s src linked",
}


async def test_a_rollout_finds_what_it_wrote_and_the_base_stays_as_it_was(
    agent: Make, index: Index, folder: Path, scene: Any, tmp_path: Path
) -> None:
    base, place = Base({name: text.encode() for name, text in scene.FILES.items()}), tmp_path / "rollout"
    place.mkdir()
    for name, data in base.files.items():
        (place / name).write_bytes(data)
    line = Line(index.overlay())
    mine, other = (
        OverlaidIndex(line, LocalFolder(place), base),
        OverlaidIndex(Line(index.overlay()), LocalFolder(folder), base),
    )
    outcome = await agent(
        script(scene), SETTINGS, sandbox=LocalFolder(place), services=AgentServices(code_index=mine)
    ).run()
    before, _, after = answers(outcome)
    assert "member.py" not in before and after.startswith("member.py:1-2 member_discount")
    assert line.sent == [["member.py"]], "only what changed is sent, once"
    hits = await other.search("discount for members", limit=5, under=None)
    assert all(hit.path != "member.py" for hit in hits)


@pytest.mark.parametrize("examples", [8, pytest.param(100, marks=pytest.mark.nightly)])
def test_an_overlay_finds_what_a_persons_index_finds_whatever_a_session_did(
    tmp_path_factory: pytest.TempPathFactory, examples: int
) -> None:
    """Both look at the files before each question, so that neither can miss what a command did."""

    @given(steps=st.lists(st.sampled_from(list(CHANGES)), max_size=8))
    @settings(max_examples=examples, deadline=None)
    def check(steps: list[str]) -> None:
        _compare_indexes(tmp_path_factory, steps)

    check()


def _compare_indexes(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    home = tmp_path_factory.mktemp("home")
    root = home / "repository"
    (root / "src").mkdir(parents=True)
    files = {
        "src/shop.py": "def total(items): return 0\n",
        "other/shop.py": "def total(other): return 1\n",
        ".gitignore": "*.log\n",
    }
    base = Base({name: text.encode() for name, text in files.items()})
    for name, data in base.files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(data)
    rollout = OverlaidIndex(Line(Bases(home / "bases").build(base.files).overlay()), LocalFolder(root), base)
    person = FolderIndex(Index(root, home / "store"))

    async def go() -> None:
        for step in steps:
            subprocess.run(CHANGES[step], shell=True, cwd=root, check=False, capture_output=True)
            asked = [await one.search("total items log", limit=9, under=None) for one in (rollout, person)]
            assert asked[0] == asked[1], step

    asyncio.run(go())


async def test_a_persons_folder_is_searched_as_it_is_now(agent: Make, index: Index, folder: Path, scene: Any) -> None:
    services = AgentServices(code_index=FolderIndex(index))
    outcome = await agent(script(scene), SETTINGS, sandbox=LocalFolder(folder), services=services).run()
    assert answers(outcome)[2].startswith("member.py:1-2 member_discount")


async def test_what_cannot_be_asked_is_reported_and_a_lost_service_is_ours(
    agent: Make, index: Index, folder: Path, scene: Any
) -> None:
    base = Base({name: text.encode() for name, text in scene.FILES.items()})
    far = scene.turn(("codebase_search", {"query": "x", "target_directory": "no/such/folder"}))
    outcome = await agent(
        [far, Message("assistant", "ok")],
        SETTINGS,
        services=AgentServices(code_index=OverlaidIndex(Line(index.overlay()), LocalFolder(folder), base)),
    ).run()
    assert "no indexed file lies under" in answers(outcome)[0]

    class Gone:
        async def put(self, files: Any) -> dict[str, str]:
            return {}

        async def search(self, query: str, **options: Any) -> list[Any]:
            raise ServiceLost("no service at /nowhere")

    ask = scene.turn(("codebase_search", {"query": "total"}))
    with pytest.raises(InfraError, match="no service"):
        await agent(
            [ask], SETTINGS, services=AgentServices(code_index=OverlaidIndex(Gone(), LocalFolder(folder), base))
        ).run()
