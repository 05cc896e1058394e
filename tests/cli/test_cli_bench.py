"""`etude bench --model URL` end to end: HTTP, tool calls, harness, sandboxes, graders, report; and every way it can go wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from endpoint_lab import Lab, Player, cheat, nop, reference, serving

from etude.bench.real.pin import PackagesUnavailable, default_cache
from etude.bench.real.source import RealPackages
from etude.bench.suite import choose
from etude.cli.answer import Answer
from etude.cli.bench.recipe import EndpointError, SuiteName, bench
from etude.factory.exercises.source import ExerciseSource
from etude.policy import openai
from etude.recipe.read import find_recipe, read_recipe
from etude.run import endpoint_bench
from etude.run.endpoint_bench import EndpointRefused
from etude.tasks.task import Task

TASKS = 16  # two of each level


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(endpoint_bench, "RETRIES", 2)
    monkeypatch.setenv("SOME_KEY", "sesame")


def exercises() -> list[Task]:
    recipe = read_recipe([find_recipe("ci")])
    weights = {str(level): weight for level, weight in recipe.exercises.levels.items()}
    return choose(ExerciseSource(recipe.exercises), weights, TASKS, recipe.bench.seed, floors=dict.fromkeys(weights, 2))


def real_bugs(count: int | None) -> list[Task]:
    source = RealPackages(default_cache())
    try:
        return [source.task(task_id) for task_id in source.ids("heldout")[:count]]
    except PackagesUnavailable as reason:
        pytest.skip(str(reason))


def ask(lab: Lab, folder: Path, suite: SuiteName = SuiteName.exercises, tasks: int | None = TASKS, **more) -> Answer:
    return bench(["ci"], None, folder, lab.url, "some/model", suite, tasks, key_env="SOME_KEY", concurrency=2, **more)


@pytest.mark.parametrize(("player", "expected"), [(reference, 100.0), (nop, 0.0), (cheat, 0.0)])
def test_over_http_the_reference_solves_every_exercise_and_nop_and_cheats_none(
    tmp_path: Path, player: Player, expected: float
) -> None:
    with serving(Lab(tasks=exercises(), player=player)) as lab:
        answer = ask(lab, tmp_path, price_in=10.0, price_out=20.0, price_cached=1.0)
    entry = answer.document["bench"]["some/model"]
    assert entry["avg"] == expected and entry["tasks"] == TASKS and "some/model" in answer.text
    turns = entry["usage"]["turns"]
    assert turns == len(lab.asked) - 1  # all but the greeting
    assert entry["usage"]["input_tokens"] == 1000 * turns and entry["usage"]["output_tokens"] == 100 * turns
    assert entry["usage"]["dollars"] == pytest.approx(turns * (600 * 10 + 400 * 1 + 100 * 20) / 1e6)
    assert {row["authorization"] for row in lab.asked} == {"Bearer sesame"}
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["schema"] == 1 and report["bench"] == answer.document["bench"] and report["seconds"]["bench"] > 0
    assert "some/model" in (tmp_path / "report.html").read_text()


@pytest.mark.timeout(300)  # 3 s on a quiet core, behind a download the first time
def test_over_http_the_reference_solves_a_real_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        RealPackages, "ids", lambda self, split: ["mpmath-difference"]
    )  # the one with the fastest tests
    with serving(Lab(tasks=real_bugs(1), player=reference)) as lab:
        answer = ask(lab, tmp_path, SuiteName.real, 1)
    assert answer.document["bench_real"]["some/model"]["avg"] == 100.0 and "bench" not in answer.document


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("player", "expected"), [(reference, 100.0), (nop, 0.0), (cheat, 0.0)])
def test_over_http_the_reference_solves_every_real_bug_and_nop_and_cheats_none(
    tmp_path: Path, player: Player, expected: float
) -> None:
    with serving(Lab(tasks=real_bugs(None), player=player)) as lab:
        entry = ask(lab, tmp_path, SuiteName.real, None).document["bench_real"]["some/model"]
    assert entry["avg"] == expected and entry["tasks"] == len(lab.tasks) and len(entry["by_package"]) >= 4


def test_a_server_that_dies_midway_is_one_line_and_the_same_command_goes_on(tmp_path: Path) -> None:
    lab = Lab(tasks=exercises(), player=nop, refuse=lambda number: (502, {}, "gone") if number > 5 else None)
    with serving(lab), pytest.raises(EndpointError, match=r"stopped answering.*HTTP 502.*same command again"):
        ask(lab, tmp_path)
    kept = len((tmp_path / "exercises.jsonl").read_text().splitlines())
    assert 2 <= kept <= 4 and len(lab.asked) < 15  # nobody waited for the other tasks
    lab.refuse, before = lambda number: None, len(lab.asked)
    with serving(lab):
        answer = ask(lab, tmp_path)
    assert len(lab.asked) - before == 1 + TASKS - kept  # a greeting and what was missing
    assert answer.document["bench"]["some/model"]["tasks"] == TASKS


def test_rate_limits_are_waited_out(tmp_path: Path) -> None:
    lab = Lab(tasks=exercises(), refuse=lambda n: (429, {"Retry-After": "0.01"}, "slow down") if n % 3 == 0 else None)
    with serving(lab):
        assert ask(lab, tmp_path).document["bench"]["some/model"]["tasks"] == TASKS


def test_a_full_context_ends_the_session_as_evidence(tmp_path: Path) -> None:
    full = (400, {}, '{"error": {"message": "This model\'s maximum context length is 8192 tokens"}}')
    lab = Lab(tasks=exercises(), refuse=lambda number: full if number > 1 else None)
    with serving(lab):
        assert ask(lab, tmp_path).document["bench"]["some/model"]["avg"] == 0.0


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        ((401, {}, "bad key"), "set SOME_KEY"),
        ((404, {}, "no such model"), "model name some/model"),
        ((400, {}, "model does not support tools"), "started with tool calls enabled"),
        ((400, {}, "unsupported parameter: seed"), "--omit FIELD"),
    ],
)
def test_what_is_wrong_from_the_start_costs_one_request_and_one_line(
    tmp_path: Path, refusal: tuple[int, dict[str, str], str], words: str
) -> None:
    with serving(Lab(refuse=lambda number: refusal)) as lab, pytest.raises(EndpointRefused, match=words) as caught:
        ask(lab, tmp_path)
    assert len(lab.asked) == 1 and "\n" not in str(caught.value)


def test_an_absent_server_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(EndpointRefused, match="did not answer a greeting.*ConnectError"):
        ask(Lab("http://127.0.0.1:9/v1"), tmp_path)


def test_a_bench_begun_under_other_conditions_is_not_gone_on_with(tmp_path: Path) -> None:
    with serving(Lab(tasks=exercises())) as lab:
        ask(lab, tmp_path)
        with pytest.raises(EndpointRefused, match=r"other conditions \(limits\)"):
            ask(lab, tmp_path, temperature=0.5)


def test_a_refused_greeting_binds_to_nothing(tmp_path: Path) -> None:
    lab = Lab(tasks=exercises(), refuse=lambda number: (400, {}, "temperature must be 1") if number == 1 else None)
    with serving(lab):
        with pytest.raises(EndpointRefused, match="temperature must be 1"):
            ask(lab, tmp_path, temperature=0.5)
        assert ask(lab, tmp_path).document["bench"]["some/model"]["tasks"] == TASKS


def test_another_runs_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("")
    with pytest.raises(EndpointRefused, match="another run"):
        ask(Lab("http://127.0.0.1:9/v1"), tmp_path)
    assert (tmp_path / "recipe.toml").read_text() == ""


def test_too_few_tasks_for_the_levels_are_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with serving(Lab()) as lab, pytest.raises(EndpointRefused, match="--tasks 3"):
        ask(lab, tmp_path, tasks=3)
    assert not lab.asked


def test_without_a_package_index_the_real_suite_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETUDE_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with (
        serving(Lab()) as lab,
        pytest.raises(EndpointRefused, match="could not be downloaded.*--suite exercises") as caught,
    ):
        ask(lab, tmp_path / "out", SuiteName.real, 1)
    assert not lab.asked and "\n" not in str(caught.value)


def test_a_dry_run_asks_nothing_and_says_what_it_would(tmp_path: Path) -> None:
    answer = ask(Lab("http://127.0.0.1:9/v1"), tmp_path / "new", SuiteName.both, None, dry_run=True)
    assert answer.document["suites"] == ["exercises", "real"] and "SOME_KEY is set" in answer.text
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("url", "name"), [("127.0.0.1:8000", "m"), ("http://127.0.0.1:8000/v1", None)])
def test_an_endpoint_described_badly_is_refused(tmp_path: Path, url: str, name: str | None) -> None:
    with pytest.raises(EndpointError):
        bench(["ci"], None, tmp_path, url, name)
