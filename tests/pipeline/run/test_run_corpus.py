"""Stage corpus: from sources to shards by source and form; what is held out is nowhere learnt from; a kill costs nothing that was done."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from etude.agent.chat.special import FIM_MIDDLE, SPECIAL_TOKENS
from etude.core.events.log import EventLog
from etude.learn.corpus.fim_tokens import NoFimTokens
from etude.learn.corpus.shards import TokenShards
from etude.learn.corpus.split import held_out
from etude.learn.corpus.tokenizer import load_tokenizer, train_tokenizer
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.stage import Context, StageError
from etude.pipeline.run.stages import corpus
from etude.pipeline.run.stages.corpus import exercise_documents

LICENCE = (Path(__file__).parents[3] / "LICENSE").read_text()
SETTINGS: dict[str, Any] = {
    "exercise_documents": 80, "exercise_heldout_share": 0.2, "vocabulary_size": 400, "fim_rate": 0.5, "lookup_tokens": 512,
    "project_tokens": 1024, "library": {"workers": 1, "heldout_share": 0.5},
}  # fmt: skip


def module(name: str) -> str:
    rng = random.Random(name)
    body = "".join(
        f"def {name}_{i}(first_{i}, second_{rng.randrange(99)}):\n    return {rng.randrange(10**6)} * first_{i}\n\n\n"
        for i in range(12)
    )
    return f'"""Module {name}."""\n\n\n{body}'


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Any]:
    """A folder that is held out and one that is not."""
    names = (f"project{i}" for i in range(100))
    train, heldout = (next(n for n in names if held_out(n, 0.5) is out) for out in (False, True))
    for folder in (train, heldout):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "LICENSE").write_text(LICENCE)
        for i in range(4):
            (tmp_path / folder / f"m{i}.py").write_text(module(f"{folder}_{i}"))
    return {
        "ours": {"kind": "folder", "path": tmp_path / train, "weight": 3},
        "theirs": {"kind": "folder", "path": tmp_path / heldout},
    }


def context(run: Path, sources: dict[str, Any], **changes: Any) -> Context:
    model = {"init": changes.pop("init", "")}
    settings = SETTINGS | {"sources": sources} | changes
    recipe = Recipe.model_validate({"corpus": settings, "model": model})
    (run / "corpus").mkdir(parents=True, exist_ok=True)
    return Context(recipe, run, "corpus", EventLog(run / "events.jsonl"))


def summary(run: Path) -> dict[str, Any]:
    return json.loads((run / "corpus" / "summary.json").read_text())


def test_every_source_has_its_shards_by_form_and_held_out_projects_are_not_in_those_to_train_on(
    tmp_path: Path, sources: dict[str, Any]
) -> None:
    corpus.run(context(tmp_path / "run", sources))
    folder, found = tmp_path / "run" / "corpus", summary(tmp_path / "run")
    ours, theirs, own = (found["shards"][name] for name in ("ours.files", "theirs.files", "exercises.files"))
    assert ours["documents"] == 5 and ours["heldout_documents"] == 0, "four modules and the licence"
    assert theirs["documents"] == 0 and theirs["heldout_documents"] == 4, "the licence is a copy"
    assert own["documents"] + own["heldout_documents"] == 80 - found["refused"].get("exercise drawn twice", 0)
    assert {path.name for path in (folder / "train").iterdir()} == {
        "exercises.files", "ours.files", "ours.projects", "ours.lookups"
    }  # fmt: skip
    tokenizer = load_tokenizer(folder)
    texts = [tokenizer.decode(ids, skip_special_tokens=True) for ids in documents(folder / "train")]
    assert not [text for text in texts if "def project" in text and sources["theirs"]["path"].name in text]
    assert found["vocabulary"] == tokenizer.get_vocab_size() and found["weights"] == {
        "ours": 3, "theirs": 1, "exercises": 1
    }  # fmt: skip
    assert found["library"]["heldout_projects"] == [sources["theirs"]["path"].name]


def documents(folder: Path) -> list[list[int]]:
    shards = [TokenShards(found) for found in sorted(folder.iterdir())]
    return [part.document(i).tolist() for part in shards for i in range(len(part))]


def test_only_what_is_learnt_from_is_cut_for_fill_in_the_middle(tmp_path: Path, sources: dict[str, Any]) -> None:
    corpus.run(context(tmp_path / "run", sources, fim_rate=1.0))
    folder = tmp_path / "run" / "corpus"
    middle = SPECIAL_TOKENS.index(FIM_MIDDLE)
    cut = [ids for ids in documents(folder / "train") if middle in ids]
    assert 4 <= len(cut) <= 5 and all(sum(i < len(SPECIAL_TOKENS) for i in ids) == 3 for ids in cut)
    assert not [ids for ids in documents(folder / "heldout") if middle in ids]


def test_no_project_string_is_longer_than_asked_and_lengths_are_counted_by_form(
    tmp_path: Path, sources: dict[str, Any]
) -> None:
    corpus.run(context(tmp_path / "run", sources))
    shards = TokenShards(tmp_path / "run" / "corpus" / "train" / "ours.projects")
    assert 1 < len(shards) and shards.lengths.max() <= 1024
    found = summary(tmp_path / "run")["lengths"]
    assert set(found) == {"files", "projects", "lookups"} and found["projects"][-1][0] <= 1024
    assert sum(count for _, count in found["projects"]) == sum(
        figures["documents"] + figures["heldout_documents"]
        for name, figures in summary(tmp_path / "run")["shards"].items()
        if name.endswith(".projects")
    )


def test_releases_give_changes_of_their_own_form(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()

    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *words], cwd=repository, check=True, capture_output=True)

    git("init", "-q")
    for version in ("1.0.0", "1.1.0"):
        (repository / "m.py").write_text(module("first") + (module("second") if version == "1.1.0" else ""))
        git("add", ".")
        git("commit", "-qm", version)
        git("tag", f"v{version}")
    source = {"ours": {"kind": "git", "path": repository, "releases": 2}}
    corpus.run(context(tmp_path / "run", source, library={"workers": 1, "heldout_share": 0.0}))
    figures = summary(tmp_path / "run")["shards"]["ours.changes"]
    assert figures["documents"] >= 1 and figures["heldout_documents"] == 0
    text = load_tokenizer(tmp_path / "run" / "corpus").decode(
        TokenShards(tmp_path / "run" / "corpus" / "train" / "ours.changes").document(0).tolist()
    )
    assert "+def second_0(" in text and "-def first_0(" not in text


def test_some_documents_are_kept_with_their_provenance(tmp_path: Path, sources: dict[str, Any]) -> None:
    corpus.run(context(tmp_path / "run", sources))
    kept = json.loads((tmp_path / "run" / "corpus" / "samples.json").read_text())
    assert 8 < len(kept) <= 24 and {one["form"] for one in kept} == {"files", "projects", "lookups"}
    assert {one["source"] for one in kept} == {"ours", "exercises"}
    code = next(one for one in kept if one["source"] == "ours" and one["form"] == "files")
    assert code["licence"] == "Apache-2.0" and code["path"] and code["project"] == sources["ours"]["path"].name


class Killed(BaseException):
    pass


@pytest.mark.parametrize("after", [0, 2, 4])
def test_a_stage_killed_between_shards_goes_on_to_the_same_files(
    tmp_path: Path, sources: dict[str, Any], monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    corpus.run(context(tmp_path / "straight", sources))
    real, left = corpus.shard, after

    def dying(*arguments: Any) -> Any:
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        return real(*arguments)

    monkeypatch.setattr(corpus, "shard", dying)
    with pytest.raises(Killed):
        corpus.run(context(tmp_path / "killed", sources))
    monkeypatch.undo()
    corpus.run(context(tmp_path / "killed", sources))
    for split in ("train", "heldout"):
        assert documents(tmp_path / "killed" / "corpus" / split) == documents(tmp_path / "straight" / "corpus" / split)
    assert summary(tmp_path / "killed") == summary(tmp_path / "straight")


def test_a_run_that_goes_on_from_a_checkpoint_uses_its_tokenizer(tmp_path: Path, sources: dict[str, Any]) -> None:
    init = tmp_path / "init"
    init.mkdir()
    train_tokenizer([module("other")] * 2, ["<|im_end|>"], 350).save(str(init / "tokenizer.json"))
    corpus.run(context(tmp_path / "run", sources, fim_rate=0.0, init=str(init)))
    assert (tmp_path / "run" / "corpus" / "tokenizer.json").read_text() == (init / "tokenizer.json").read_text()
    assert summary(tmp_path / "run")["vocabulary"] <= 350
    with pytest.raises(NoFimTokens, match="set corpus.fim_rate to 0"):
        corpus.run(context(tmp_path / "cut", sources, init=str(init)))
    assert not (tmp_path / "cut" / "corpus" / "library").exists(), "nothing is built for what can't be used"


def test_without_a_source_the_exercises_are_learnt_from_and_without_both_it_says_so(tmp_path: Path) -> None:
    corpus.run(context(tmp_path / "run", {}))
    assert list(summary(tmp_path / "run")["shards"]) == ["exercises.files"]
    assert summary(tmp_path / "run")["library"] is None
    with pytest.raises(StageError, match=r"no text to train on: add a table \[corpus.sources.<name>\]"):
        corpus.run(context(tmp_path / "none", {}, exercise_documents=0))


def test_about_the_wanted_share_of_exercises_is_held_out_whatever_their_number() -> None:
    few, many = (
        exercise_documents(Recipe.model_validate({"corpus": {"exercise_documents": n, "exercise_heldout_share": 0.1}}))[
            0
        ]
        for n in (200, 1_000)
    )
    assert 60 < len(many["heldout"]) < 140
    assert {d["text"] for d in few["heldout"]} <= {d["text"] for d in many["heldout"]}
    assert not {d["text"] for d in many["heldout"]} & {d["text"] for d in many["train"]}
