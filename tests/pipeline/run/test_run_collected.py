"""The stages sessions and sft without pretraining: from the checkpoint that the recipe names, on scripted or on collected sessions alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from etude.cli.run import run as run_verb
from etude.core.events.log import EventLog
from etude.learn.model.checkpoint import load_checkpoint
from etude.pipeline.recipe.errors import RecipeError
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.stage import Context, StageError
from etude.pipeline.run.stages import sessions, sft
from etude.pipeline.run.stages.pretraining import CHECKPOINT
from etude.rollout.collect.offered_tools import other_tools
from etude.rollout.scripted_sessions import read_sessions

NANO = Path(__file__).parents[3] / "checkpoints" / "sft-nano"
WITHOUT = ["corpus", "base", "short", "mtp", "long", "competent_sft", "probes"]


def context_of(stage: str, run: Path, **changes: object) -> Context:
    recipe = {
        "run": {"without": [*WITHOUT, *(() if "sft" not in changes else ("sessions",))]},
        "model": {"init": str(NANO)},
        "sessions": {"count": 6, "competence": 1.0, "early_summaries": 0.0},
        "sft": {"batch_tokens": 512, "loop": {"steps": 1, "threads": 1}, "heldout_share": 0.34},
    }
    for section, values in changes.items():
        recipe[section] = {**recipe[section], **values}  # type: ignore[dict-item]
    (run / stage).mkdir(parents=True, exist_ok=True)
    return Context(Recipe.model_validate(recipe), run, stage, EventLog(run / "events.jsonl"))


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory in which the stage sessions is done."""
    run = tmp_path_factory.mktemp("scripted")
    sessions.run(context_of("sessions", run))
    return run


def summary(run: Path) -> dict[str, object]:
    return json.loads((run / "sft" / "summary.json").read_text())


def test_sft_begins_with_the_checkpoint_that_the_recipe_names(scripted: Path) -> None:
    sft.run(context_of("sft", scripted))
    found = summary(scripted)
    assert (found["sessions"], found["segments"], found["heldout_segments"]) == (6, 4, 2)
    begun, left = load_checkpoint(NANO).state_dict(), load_checkpoint(scripted / "sft" / CHECKPOINT).state_dict()
    assert begun.keys() == left.keys() and any((left[name] != begun[name]).any() for name in begun)


def test_sft_learns_from_collected_sessions_alone_and_holds_the_last_ones_out(scripted: Path, tmp_path: Path) -> None:
    sft.run(context_of("sft", tmp_path, sft={"collected": [str(scripted / "sessions")]}))
    found = summary(tmp_path)
    segments = [len(session.segments()) for session in read_sessions(scripted / "sessions")]
    assert "sessions" not in found and found["segments"] == sum(segments[:4])
    assert found["heldout_segments"] == sum(segments[4:]) and found["heldout_loss"]
    card = (tmp_path / "sft" / CHECKPOINT / "README.md").read_text()
    assert "of collected ones (sessions)" in card and "of the run's sessions" not in card


def test_a_dry_run_says_that_collected_sessions_have_other_tools_than_the_recipe(
    scripted: Path, tmp_path: Path
) -> None:
    folder = scripted / "sessions"
    words = ["run.without=" + json.dumps([*WITHOUT, "sessions"]), f"model.init={NANO}", f'sft.collected=["{folder}"]']
    assert "notes" not in run_verb(["ci"], words, tmp_path / "run", only="sft", dry_run=True).document
    file = next((shutil.copytree(folder, tmp_path / "sessions")).glob("*.jsonl"))
    head, rest = file.read_text().split("\n", 1)
    header = json.loads(head)
    header["harness_facts"]["schemas"].pop()
    file.write_text(json.dumps(header) + "\n" + rest)
    words[2] = f'sft.collected=["{tmp_path / "sessions"}"]'
    shown = run_verb(["ci"], words, tmp_path / "run", only="sft", dry_run=True)
    [note] = shown.document["notes"]
    assert (
        note.startswith(f"1 of 6 sessions in {tmp_path / 'sessions'} declare the tools grep, view, edit, test, ")
        and note in shown.text
    )


def test_a_folder_without_sessions_and_a_model_without_a_chat_format_are_refused_before_sft(
    scripted: Path, tmp_path: Path
) -> None:
    words = ["run.without=" + json.dumps([*WITHOUT, "sessions"]), f"model.init={NANO}"]
    with pytest.raises(
        RecipeError, match=f"sft.collected: {tmp_path} holds no sessions; `etude session collect` writes them"
    ):
        run_verb(["ci"], [*words, f'sft.collected=["{tmp_path}"]'], tmp_path / "run", only="sft", dry_run=True)
    init = copied_without_chat(tmp_path / "init")
    words = [words[0], f"model.init={init}", f'sft.collected=["{scripted / "sessions"}"]']
    with pytest.raises(RecipeError, match="the stage sft can't write its demonstrations in this model's chat format"):
        run_verb(["ci"], words, tmp_path / "run", only="sft", dry_run=True)


def copied_without_chat(folder: Path) -> Path:
    """The nano checkpoint, its tokenizer without one of the chat markers."""
    shutil.copytree(NANO, folder)
    (folder / "tokenizer.json").write_bytes((NANO / "tokenizer.json").read_bytes().replace(b"<|user|>", b"<|usxr|>"))
    return folder


def test_a_model_without_a_chat_format_is_refused_by_the_stage(tmp_path: Path) -> None:
    (tmp_path / "init").mkdir()
    (tmp_path / "init" / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "init" / "tokenizer.json").write_bytes(
        (Path(NANO) / "tokenizer.json").read_bytes().replace(b"<|user|>", b"<|usxr|>")
    )
    with pytest.raises(
        StageError, match="has no chat format to write demonstrations in: .*etude tokenizer extend --chat"
    ):
        sessions.run(context_of("sessions", tmp_path, model={"init": str(tmp_path / "init")}))


@pytest.mark.parametrize("line", ["{", "[1]", ""])
def test_a_session_file_without_a_header_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "one.jsonl").write_text(line + "\n")
    with pytest.raises(ValueError, match=r"one.jsonl: its first line is no header of a session .* move the file away"):
        other_tools(tmp_path, [])
