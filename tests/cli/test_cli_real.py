"""Verbs that reach into the rooms: an exported task, a replayed session."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.agent.chat.nano import NanoRenderer
from etude.cli.replayer import ReplayError
from etude.cli.session import list_sessions, replay, show
from etude.cli.tasks.export import export
from etude.core.events.log import EventLog
from etude.core.trace.vocabulary import write_vocabulary
from etude.pipeline.recipe.read import read_recipe, resolved_toml
from etude.rollout.scripted_sessions import collect_sessions, session_path
from etude.sandbox.pool import open_pool
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.harbor import read_task


def test_an_exported_task_reads_back_as_the_same_task(tmp_path: Path) -> None:
    answer = export(["one-bug/train/000003"], tmp_path)
    task = ExerciseSource(read_recipe([]).exercises).task("one-bug/train/000003")
    assert read_task(Path(answer.document["exported"][0]["folder"])) == task


@pytest.fixture(params=["text", "tokens"])
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A run directory with three demonstrations, without tokens or with those of the run's tokenizer."""
    recipe = read_recipe([], ["sessions.count=3", "exercises.seed=5"])
    (tmp_path / "recipe.toml").write_text(resolved_toml(recipe))
    renderer = None
    if request.param == "tokens":
        (tmp_path / "base").mkdir()
        byte_tokenizer().save(str(tmp_path / "base" / "tokenizer.json"))
        renderer = NanoRenderer.load(tmp_path / "base")

    async def collect() -> None:
        pool = await open_pool(recipe.sandbox)
        try:
            source = ExerciseSource(recipe.exercises)
            folder = tmp_path / "sft" / "sessions"
            harness = recipe.harness.model_copy(update={"max_session_tokens": 4000, "max_tokens_per_turn": 400})
            await collect_sessions(source, recipe.sessions, harness, renderer, pool, folder, EventLog.null())
        finally:
            await pool.close()

    asyncio.run(collect())
    if renderer is not None:
        write_vocabulary(tmp_path / "sft" / "sessions", renderer.vocabulary())
    (tmp_path / "events.jsonl").write_text('{"kind": "note"}\n')  # no session, though it ends alike
    return tmp_path


def tamper(file: Path) -> None:
    lines = file.read_text().splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines) if '"type":"tool_result"' in line)
    row = json.loads(lines[place])
    row["text"] += " tampered"
    lines[place] = json.dumps(row) + "\n"
    file.write_text("".join(lines))


def test_a_runs_sessions_are_found_and_replay_equal_with_its_own_recipe_and_tokenizer(run: Path) -> None:
    answer = replay([run])
    assert (answer.code, answer.document["equal"], answer.document["sessions"]) == (0, True, 3), answer.text
    listed = list_sessions([run], limit=2).document
    assert listed["total"] == 3 and len(listed["sessions"]) == 2
    assert show(Path(listed["sessions"][0]["file"])).document["task_id"] == listed["sessions"][0]["task_id"]


def test_a_tampered_session_is_named_with_the_byte_and_fails_the_replay_of_its_folder(run: Path) -> None:
    spoilt = session_path(run / "sft" / "sessions", 1)
    before = next(e for e in show(spoilt).document["entries"] if e["type"] == "tool_result")["text"]
    tamper(spoilt)
    answer = replay([run])
    assert answer.code == 1 and [d["file"] for d in answer.document["differences"]] == [str(spoilt)]
    assert f"byte {len(before.encode())}: " in answer.text and "tampered" in answer.text
    assert "1 differ" in answer.text


@pytest.mark.parametrize("run", ["text"], indirect=True)
def test_a_sample_is_drawn_from_each_folder_and_stage_by_its_seed(run: Path) -> None:
    other = run / "rl" / "sessions" / "step-000"
    other.mkdir(parents=True)
    for number in range(3):
        for file in (run / "sft" / "sessions").glob(f"{number:06d}.*"):
            (other / file.name).write_bytes(file.read_bytes())
    places = [run / "sft", run / "rl"]
    assert replay(places, sample=2).document["sessions"] == replay([run], sample=2).document["sessions"] == 4
    spoilt = session_path(run / "sft" / "sessions", 2)
    tamper(spoilt)
    codes = [replay([run / "sft"], sample=1, seed=seed).code for seed in (4, 5, 5)]
    assert codes == [0, 1, 1], "seed 5 draws the spoilt one of the three, always"


@pytest.mark.parametrize("run", ["tokens"], indirect=True)
def test_tokens_are_shown_as_text_with_logprob_and_version(run: Path) -> None:
    answer = show(session_path(run / "sft" / "sessions", 0), tokens=True)
    segment = answer.document["tokens"][0]
    assert "<|assistant|>" in segment["tokens"] and any(segment["sampled"])
    assert {len(values) for values in segment.values()} == {answer.document["segments_tokens"][0]}


@pytest.mark.parametrize("run", ["tokens"], indirect=True)
def test_without_the_tokenizer_that_made_it_a_session_is_refused(run: Path) -> None:
    other = byte_tokenizer()
    other.add_tokens(["def"])
    other.save(str(run / "base" / "tokenizer.json"))
    with pytest.raises(ReplayError, match="--checkpoint"):
        replay([run])
