"""`etude report` is a group, and goes on meaning what it meant without a verb."""

import pytest
from typer.testing import CliRunner

from etude.cli.answer import Answer
from etude.cli.main import app


def asked(*words: str) -> Answer:
    return CliRunner().invoke(app, ["report", *words], standalone_mode=False, catch_exceptions=False).return_value


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "recipe.toml").write_text('[run]\nname = "mine"\n')
    return tmp_path / "mine"


@pytest.mark.parametrize("words", [["mine"], ["rebuild", "mine"], ["mine", "--json"], ["--json", "mine"]])
def test_a_run_without_a_verb_is_rebuilt(run, words: list[str]) -> None:
    assert asked(*words).document["recipe"]["run"]["name"] == "mine" and (run / "report.html").is_file()


def test_a_verb_misspelt_is_told_and_not_taken_for_a_run(run) -> None:
    with pytest.raises(Exception, match="did you mean rebuild") as told:
        asked("rebiuld", "mine")
    assert hasattr(told.value, "format_message")


def test_a_folder_may_have_nearly_a_verbs_name(run) -> None:
    run.rename(run.parent / "rebuilt")
    assert asked("rebuilt").document["recipe"]["run"]["name"] == "mine"
