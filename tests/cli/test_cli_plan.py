"""`etude plan` as a person types it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from here import Here, document

sys.path.insert(
    0, str(Path(__file__).parents[1] / "learn" / "weights")
)  # tests are no package: this is how they share a module

from hub_server import serve

ROOT = Path(__file__).parents[2]
NANO = ROOT / "checkpoints" / "sft-nano"


def test_a_checkpoint_is_planned_with_memory_exchanges_and_time(here: Here) -> None:
    words = ("plan", "--model", str(NANO), "--gpus", "2", "--seq", "512", "--experts", "2")
    done = here(*words)
    assert done.returncode == 0
    assert "1.72M parameters, 0.84M for a token" in done.stdout
    assert "tokens of experts  all_to_all" in done.stdout and "peak, of 80.00 GB" in done.stdout
    found = document(here(*words, "--tokens", "1e9", "--price", "2", "--json"))
    assert found["layout"]["ranks"] == 2 and found["step"]["tokens"] == 1024
    assert found["total"]["cost"][0] == pytest.approx(24 * 2 * 2 * found["total"]["days"][0])


def test_a_stage_of_a_recipe_is_planned_and_options_replace_what_it_says(here: Here) -> None:
    words = ("plan", "laptop", "--stage", "long", "--set", "pretrain.long.loop.parallel.shard=4", "--json")
    own = document(here(*words))
    assert own["layout"]["shard"] == 4 and own["step"]["compute"] == "fp32" and own["step"]["length"] == 1024
    other = document(here(*words, "--gpus", "8", "--context", "2", "--seq", "512", "--compute", "bf16"))
    assert other["layout"] == {"replicate": 1, "shard": 8, "experts": 1, "context": 2, "ranks": 8}
    assert other["step"]["length"] == 512 and other["step"]["compute"] == "bf16"


def test_the_trainer_of_rl_is_planned_with_its_micro_batches(here: Here) -> None:
    words = ("--set", "rl.parallel.shard=2", "--set", "rl.kl_beta=0.1", "--set", "rl.update.batch_tokens=2048")
    found = document(here("plan", "laptop", "--stage", "rl", *words, "--json"))
    step = found["step"]
    assert step["scored"] and step["rows"] * step["length"] == 2048
    assert found["layout"]["shard"] == 2 and found["rank_memory_bytes"]["reference"] > 0
    rollouts = document(here("run", "laptop", "--dry-run", "--json"))["recipe"]["rl"]
    assert step["tokens"] == rollouts["groups_per_step"] * rollouts["group_size"] * 1024  # all windows full


def test_adapters_on_several_gpus_take_less_memory_and_send_fewer_gradients(here: Here) -> None:
    words = ("plan", "--preset", "qwen3-4b", "--gpus", "2", "--seq", "1024", "--json")
    whole, adapters = document(here(*words)), document(here(*words, "--lora-rank", "8"))
    assert adapters["rank_memory_bytes"]["peak"] < 0.4 * whole["rank_memory_bytes"]["peak"]
    gradients = [
        sum(each["sent_bytes"] for each in found["exchanges"] if each["what"] == "gradients")
        for found in (whole, adapters)
    ]
    assert gradients[1] < 0.02 * gradients[0]


def test_what_does_not_fit_is_an_answer_with_status_1(here: Here) -> None:
    done = here("plan", "--preset", "kimi-k2.5", "--gpus", "1", "--lora-rank", "8")
    assert done.returncode == 1
    assert "does not fit: a rank needs" in done.stdout and "of 80.00 GB" in done.stdout


def test_a_search_lists_layouts_that_fit_fastest_first(here: Here) -> None:
    found = document(here("plan", "--preset", "qwen3-30b-a3b", "--gpus", "8", "--seq", "32768", "--search", "--json"))
    rates = [layout["tokens_per_s"][0] for layout in found["layouts"]]
    assert len(rates) == 8 and rates == sorted(rates, reverse=True)
    assert all(layout["peak_bytes"] <= 80e9 for layout in found["layouts"])
    done = here("plan", "--preset", "kimi-k2.5", "--gpus", "8", "--search")
    assert done.returncode == 1 and "no layout of 8 GPUs of 80 GB fits rows of 8,192 tokens" in done.stdout


def test_a_name_on_a_hub_is_planned_without_its_weights(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(tmp_path / "cache", monkeypatch) as hub:
        hub.add("owner/nano", {path.name: path.read_bytes() for path in NANO.iterdir() if path.is_file()})
        found = document(here("plan", "--model", "owner/nano", "--seq", "512", "--json"))
    assert found["parameters"]["total"] == 1_724_800
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name one of RECIPE, --model DIR|NAME and --preset (kimi-k2.5, deepseek-v3, glm-4.5-air, qwen3-30b-a3b, qwen3-4b): none is given"),
        (("laptop", "--preset", "qwen3-4b"), "RECIPE and --preset are given"),
        (("--preset", "gpt-5"), "no preset is called 'gpt-5'; known are kimi-k2.5"),
        (("--preset", "qwen3-4b", "--gpu", "h900"), "--gpu 'h900' is not known; known are a100-80gb"),
        (("--preset", "qwen3-4b", "--price", "2"), "--price 2.0 needs --tokens"),
        (("--preset", "qwen3-4b", "--gpus", "3", "--replicate", "2"), "--replicate 2 does not divide --gpus 3"),
        (("--preset", "qwen3-30b-a3b", "--gpus", "8", "--experts", "3"), "experts = 3 does not divide shard = 8"),
        (("--preset", "qwen3-4b", "--gpus", "8", "--experts", "2"), "the model's layers have no experts"),
        (("--preset", "qwen3-4b", "--gpus", "4", "--context", "8"), "context = 8 does not divide shard = 4"),
        (("--preset", "qwen3-4b", "--gpus", "2", "--seq", "300000"), "the model's positions end at 262144"),
        (("--model", "absent"), "absent"),
        (("--preset", "qwen3-4b", "--gpus", "8", "--search", "--context", "2"), "--search finds --context: leave it out"),
    ],
)  # fmt: skip
def test_a_plan_that_can_not_be_made_is_refused_in_one_line(here: Here, words: tuple[str, ...], said: str) -> None:
    done = here("plan", *words)
    assert done.returncode != 0 and not done.stdout
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert said in line
