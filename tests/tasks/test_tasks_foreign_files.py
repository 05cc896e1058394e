"""Task files of somebody else are refused in a moment, with the file's name: keys of 50,000 parts, depth, aliases that repeat one another."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from etude.tasks.errors import TaskError
from etude.tasks.harbor import HarborError, read_task
from etude.tasks.importers.harbor_settings import read_settings
from etude.tasks.importers.terminal_bench import one_service
from etude.tasks.mix.weights import read_weights

TOML = {
    "a long key": ".".join(["a"] * 50_000) + " = 1",
    "a deep list": "a = " + "[" * 100_000,
    "digits": "a = " + "9" * 100_000,
}
TOML_READERS: dict[str, Callable[[Path], object]] = {
    "harbor settings": lambda folder: read_settings(folder / "task.toml", {}),
    "an exported task": read_task,
    "a mix": lambda folder: read_weights(folder / "task.toml"),
}


@pytest.mark.parametrize("reader", TOML_READERS)
@pytest.mark.parametrize("kind", TOML)
def test_hostile_toml_is_refused_in_a_moment(tmp_path: Path, reader: str, kind: str) -> None:
    (tmp_path / "task.toml").write_text(TOML[kind])
    start = time.process_time()
    with pytest.raises((TaskError, HarborError), match="task.toml|does not parse"):
        TOML_READERS[reader](tmp_path)
    assert time.process_time() - start < 5


def test_a_deep_mix_in_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mix.json").write_text("[" * 100_000)
    with pytest.raises(TaskError, match="mix.json is not a mix"):
        read_weights(tmp_path / "mix.json")


def test_a_compose_file_of_aliases_is_refused_in_a_moment(tmp_path: Path) -> None:
    rows = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    (tmp_path / "compose.yaml").write_text("services: {one: {}}\n" + "\n".join(rows))
    start = time.process_time()
    with pytest.raises(TaskError, match="compose.yaml does not parse: its aliases make more than"):
        one_service(tmp_path / "compose.yaml")
    assert time.process_time() - start < 5
