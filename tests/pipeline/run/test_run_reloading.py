"""`etude reload` from the side of who asks: refused before anything is written, or answered by the run."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from etude.pipeline.recipe.errors import RecipeError
from etude.pipeline.recipe.read import resolved_toml
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run import reloading
from etude.pipeline.run.reloading import reload
from etude.rl.reload import ANSWERS, REQUEST, ReloadRefused


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run whose rl stage is in progress: the lock is held by another process, which a lock of this one's can't show."""
    folder = tmp_path / "run"
    (folder / "rl").mkdir(parents=True)
    (folder / "rl" / "ledger.jsonl").touch()
    (folder / "recipe.toml").write_text(resolved_toml(Recipe()))
    monkeypatch.setattr(reloading, "holder", lambda path: 4711)
    yield folder


def answering(run: Path, error: str = "") -> threading.Thread:
    def answer() -> None:
        path = run / "rl" / REQUEST
        while not path.exists():
            time.sleep(0.01)
        entry = json.loads(path.read_text()) | {"seconds": 2.0, "error": error}
        (run / "rl" / ANSWERS).write_text(json.dumps(entry) + "\n")
        path.unlink()

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def test_the_answer_of_the_run_is_waited_for(run: Path):
    thread = answering(run)
    found = reload(run, ["engine.max_batch=8"], "engines", wait=True)
    thread.join()
    assert found is not None
    assert (found.settings, found.engines, found.trainer, found.seconds) == ({"max_batch": 8}, True, False, 2.0)


def test_what_went_wrong_is_an_error(run: Path):
    thread = answering(run, error="the engine did not come up: no memory")
    with pytest.raises(ReloadRefused, match="did not come up: no memory"):
        reload(run, [], "", wait=True)
    thread.join()


@pytest.mark.parametrize(
    ("overrides", "only", "match"),
    [
        (["rl.slots=3"], "", "only engine"),
        (["engine.threads=7"], "", "the rl section makes it 1"),
        (["engine.max_slots=1"], "", "the rl section makes it"),
        (["engine.max_batch=8"], "trainer", "leaves them be"),
    ],
)
def test_what_can_not_change_is_refused_before_anything_is_asked(
    run: Path, overrides: list[str], only: str, match: str
):
    with pytest.raises(ReloadRefused, match=match):
        reload(run, overrides, only, wait=True)
    assert not (run / "rl" / REQUEST).exists()


def test_wrong_settings_are_reported_as_in_a_recipe(run: Path):
    for word in ("engine.max_batsh=8", "engine.max_batch=many"):
        with pytest.raises(RecipeError):
            reload(run, [word], "", wait=True)
    assert not (run / "rl" / REQUEST).exists()


def test_a_run_that_is_over_or_was_not_begun_is_refused_and_one_that_ends_meanwhile_leaves_no_request(
    run: Path, monkeypatch: pytest.MonkeyPatch
):
    held = iter([4711, None])
    monkeypatch.setattr(reloading, "holder", lambda path: next(held))
    with pytest.raises(ReloadRefused, match="ended before"):
        reload(run, [], "", wait=True)
    assert not (run / "rl" / REQUEST).exists()
    monkeypatch.setattr(reloading, "holder", lambda path: 4711)
    (run / "rl" / "summary.json").touch()
    with pytest.raises(ReloadRefused, match="no rl stage in progress"):
        reload(run, [], "", wait=True)
