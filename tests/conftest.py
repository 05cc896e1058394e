"""What every test shares: the nightly set stays out unless --all is given; renderers of real families over small tokenizers."""

from __future__ import annotations

import asyncio
import atexit
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Other work may share the machine: how long one example takes is no promise, and speed has tests of its own.
# A property gets a hundred examples in nightly runs, and thirty in others.
settings.register_profile("nightly", deadline=None)
settings.register_profile("default", deadline=None, max_examples=30)
settings.load_profile("default")

# Test models are tiny: a second thread only waits, and on a busy machine it waits long. Read when torch is first imported,
# here and in the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@contextmanager
def _full_disk(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture
def full_disk() -> Callable[[int], AbstractContextManager[None]]:
    """`with full_disk(1000):` no file of this process grows above 1,000 bytes; a write beyond that fails as on a full disk."""
    return _full_disk


# A suite that runs in the background (`nohup ./etude test &`) ignores signals, and so would every process that a test starts and stops by
# one. A handler that does nothing keeps the suite as it is, and a new program begins without it.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, lambda number, frame: None)

# What sandboxes write down and keep is of this run, not of the person who runs it: layers, the ledger. Read in processes of tests too.
_state = tempfile.mkdtemp(prefix="etude-tests-")
atexit.register(shutil.rmtree, _state, ignore_errors=True)
os.chmod(_state, 0o755)
for _name in ("XDG_DATA_HOME", "XDG_STATE_HOME"):
    os.environ[_name] = f"{_state}/{_name.lower()}"


def pytest_sessionfinish() -> None:
    """What pools that tests killed left in memory would stay until the machine is switched off."""
    from etude.sandbox.layers.orphaned import orphaned_stores, remove_orphaned

    for place in orphaned_stores():
        remove_orphaned(place)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", default=False, help="also run the tests marked nightly")


# Nightly tests take minutes on a quiet machine and several times as long on a busy one; the default limit is for short tests.
NIGHTLY_TIMEOUT_S = 900


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--all"):
        settings.load_profile("nightly")  # before tests are imported, which read it


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in _beyond_samples(items):
        item.add_marker(pytest.mark.nightly)
    nightly = [item for item in items if item.get_closest_marker("nightly")]
    for item in nightly:
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(NIGHTLY_TIMEOUT_S))
    if config.getoption("--all"):
        return
    if nightly:
        config.hook.pytest_deselected(items=nightly)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]


GOLDEN = (5**0.5 - 1) / 2


def _beyond_samples(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Of each test marked `sample(n)` the parameter sets but n of those that run by default. Places follow the golden ratio: at even steps,
    sets that combine two parameters could all have the same value of one."""
    sets: dict[tuple[Any, int], list[pytest.Item]] = {}
    for item in items:
        marker = item.get_closest_marker("sample")
        if marker and not item.get_closest_marker("nightly"):
            sets.setdefault((getattr(item, "function", None), marker.args[0]), []).append(item)
    for (_, count), found in sets.items():
        places = dict.fromkeys(int(len(found) * (number * GOLDEN % 1)) for number in range(20 * len(found)))
        kept = set(list(places)[:count])
        yield from (item for place, item in enumerate(found) if place not in kept)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("walls") and (lacking := _lacking_walls()):
        pytest.skip(lacking)


@cache
def _lacking_walls() -> str:
    """Why bubblewrap makes no sandbox here; empty where it does."""
    from etude.sandbox.errors import InfraError
    from etude.sandbox.pool import open_pool
    from etude.sandbox.settings import SandboxSettings

    async def look() -> str:
        try:
            pool = await open_pool(SandboxSettings(backend="bubblewrap"))
        except InfraError as error:
            return str(error)
        await pool.close()
        return ""

    return asyncio.run(look())


@pytest.fixture
def own_cache(tmp_path: Path) -> Path:
    """A cache folder of the test alone, for XDG_CACHE_HOME of the processes that it starts. The sandbox's runner in it is the one of all
    tests: compiling it takes every process with an empty cache five seconds, and several times that next to other tests."""
    shared = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "etude" / "native"
    shared.mkdir(parents=True, exist_ok=True)
    folder = tmp_path / "cache"
    (folder / "etude").mkdir(parents=True)
    (folder / "etude" / "native").symlink_to(shared)
    return folder


@pytest.fixture(scope="session")
def make_renderer() -> Callable[..., Any]:
    """The renderer of a model family by name (and thinking retention), over a small tokenizer with the family's markers."""
    return _family_renderer


@cache
def _family_renderer(name: str, retention: Any = "tool_cycle") -> Any:
    from etude.agent.chat.families import by_name
    from etude.agent.chat.family import FamilyRenderer
    from etude.agent.chat.hub_tokenizer import HubTokenizer

    return FamilyRenderer(by_name(name), HubTokenizer(_family_tokenizer(name)), thinking_retention=retention)


# Markers beyond those that a format can't do without, as the published tokenizers have them.
_EXTRA = {
    "glm": ("<tool_response>", "</tool_response>"),
    "deepseek": ("<think>", "</think>"),
    "kimi": ("<think>", "</think>"),
}


@cache
def _family_tokenizer(name: str) -> Any:
    """A byte-level BPE, trained on the joins at which formats break. Markers with bars are special, plain tags merely added,
    as the published tokenizers have them."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    from etude.agent.chat import trajectories
    from etude.agent.chat.families import by_name

    words = [
        trajectories.CODE, "\n\n", ">\n", "\n\n</", '{"name": "read_file", "arguments": {"path": "a.py"}}',
        "<function=read_file>\n<parameter=path>\na.py\n</parameter>\n</function>\n", "system\nuser\nassistant\n",
    ]  # fmt: skip
    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options: dict[str, Any] = {"vocab_size": 600, "show_progress": False, "initial_alphabet": alphabet}
    tokenizer.train_from_iterator(words * 20, trainers.BpeTrainer(**options))
    for marker in dict.fromkeys((*by_name(name).markers, *_EXTRA.get(name.split("-")[0], ()), "<|reserved_1|>")):
        tagged = marker.startswith("<") and "|" not in marker and "｜" not in marker
        # Phi-3's markers take the blanks behind them.
        tokenizer.add_tokens([AddedToken(marker, special=not tagged, normalized=False, rstrip=name == "phi-3.5")])
    return tokenizer
