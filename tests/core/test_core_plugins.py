"""Import paths: the object they name, and one line of error that says what is wrong with the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.core.plugins import PluginError, import_object


def test_an_import_path_gives_the_object_also_below_a_class() -> None:
    assert import_object("pathlib:Path") is Path
    assert import_object("pathlib:Path.read_text") is Path.read_text


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("pathlib", "'pathlib' is no import path; write module:name"),
        (":Path", "':Path' is no import path"),
        ("pathlib:", "'pathlib:' is no import path"),
        (
            "no_such_module_here:x",
            "can't be imported: No module named 'no_such_module_here'; install it, or add its folder to PYTHONPATH",
        ),
        ("pathlib:Paht", "the module pathlib has no Paht"),
    ],
)
def test_a_path_that_leads_nowhere_is_an_error_that_names_it(path: str, words: str) -> None:
    with pytest.raises(PluginError, match=words):
        import_object(path)


def test_whatever_a_module_raises_is_an_error_of_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "breaks_on_import.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PluginError, match="breaks_on_import can't be imported: RuntimeError: no licence"):
        import_object("breaks_on_import:thing")


def test_the_agent_finds_the_engine_by_its_import_path() -> None:
    from etude.agent.app.model import CHECKPOINT_OPENER
    from etude.learn.engine.local import open_checkpoint

    assert import_object(CHECKPOINT_OPENER) is open_checkpoint
