"""`etude report` is a group, and goes on meaning what it meant without a verb."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from etude.cli.answer import Answer
from etude.cli.main import app
from etude.evaluate.report.query.tables import TABLES


def invoked(*words: str):
    return CliRunner().invoke(app, ["report", *words], standalone_mode=False, catch_exceptions=False)


def asked(*words: str) -> Answer:
    return invoked(*words).return_value


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "recipe.toml").write_text('[run]\nname = "mine"\n')
    return tmp_path / "mine"


@pytest.mark.parametrize("words", [["mine"], ["rebuild", "mine"], ["mine", "--json"], ["--json", "mine"]])
def test_a_run_without_a_verb_is_rebuilt(run, words: list[str]) -> None:
    assert asked(*words).document["recipe"]["run"]["name"] == "mine" and (run / "report.html").is_file()


def test_a_verb_misspelt_is_reported_and_not_taken_for_a_run(run) -> None:
    with pytest.raises(Exception, match="did you mean rebuild") as refused:
        asked("rebiuld", "mine")
    assert hasattr(refused.value, "format_message")


def test_a_folder_may_have_nearly_a_verbs_name(run) -> None:
    run.rename(run.parent / "rebuilt")
    assert asked("rebuilt").document["recipe"]["run"]["name"] == "mine"


def test_rows_are_printed_and_one_document_is_given(run) -> None:
    (run / "stages.json").write_text('{"sft": {"seconds": 2.5}, "rl": {"seconds": 40.0}}')
    assert invoked("query", "mine", "stages", "stage", "--where", "seconds > 3").stdout == "stage\nrl\n"
    found = asked("query", "mine", "stages", "--sort", "-seconds", "--json").document
    assert found == {
        "columns": ["stage", "seconds"],
        "rows": [{"stage": "rl", "seconds": 40.0}, {"stage": "sft", "seconds": 2.5}],
    }
    by = asked("query", "mine", "stages", "sec*", "--by", "stage", "--sort", "seconds", "--json").document
    assert by["columns"] == ["stage", "rows", "seconds"] and by["rows"][0] == {
        "stage": "sft",
        "rows": 1,
        "seconds": 2.5,
    }
    assert asked("query", "mine").document["rows"] == dict.fromkeys(TABLES, False) | {"stages": True}


def test_a_reader_that_has_seen_enough_ends_a_query_quietly(run) -> None:
    (run / "events.jsonl").write_text(
        '{"kind": "note", "stage": "rl", "time": 1.5, "text": "%s"}\n' % ("x" * 900) * 500
    )
    words = (
        f"'{sys.executable}' -c 'from etude.cli.main import main; main()' report query mine events --jsonl | head -1"
    )
    done = subprocess.run(["bash", "-o", "pipefail", "-c", words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and json.loads(done.stdout)["time"] == 1.5
