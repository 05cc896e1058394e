"""Sessions come from real sandboxes, agree with the memory workspace, replay byte-equal, and survive a kill."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.harness.presets.preset import preset_of
from etude.agent.harness.replay import replay
from etude.agent.harness.settings import HarnessSettings
from etude.core.events.log import EventLog
from etude.core.trace.session import Session
from etude.pipeline.run.limits import roomy
from etude.rollout.attempt import AttemptSetup, attempt
from etude.rollout.scripted_sessions import SEED_STRIDE, collect_sessions, read_sessions, session_path, summarizing
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.spec import SandboxSpec
from etude.tasks.generate.demonstration import demonstrate
from etude.tasks.generate.exercises.source import LEVELS, ExerciseSource
from etude.tasks.generate.expert_calls import NoSuchMove
from etude.tasks.generate.scripted_policies import BASELINES, Expert
from etude.tasks.generate.settings import SessionSettings
from etude.tasks.registry import GRADERS

HARNESS = HarnessSettings()


def _content(session: Session) -> list[tuple[str, object]]:
    """What was said and answered, without times."""
    return [(e.type, {k: v for k, v in e.data.items() if k not in ("usage", "seconds")}) for e in session.entries]


async def _collect(folder: Path, count: int, source: ExerciseSource, pool: SandboxPool) -> int:
    settings = SessionSettings(count=count, concurrency=4)
    return await collect_sessions(source, settings, HARNESS, None, pool, folder, EventLog.null())


async def test_real_sessions_equal_those_in_memory_and_replay_byte_equal(
    tmp_path: Path, source: ExerciseSource, pool: SandboxPool
) -> None:
    await _check_sessions(tmp_path, source, pool, 16)


@pytest.mark.nightly
async def test_64_real_sessions_replay_byte_equal(tmp_path: Path, source: ExerciseSource, pool: SandboxPool) -> None:
    await _check_sessions(tmp_path, source, pool, 64)


async def _check_sessions(folder: Path, source: ExerciseSource, pool: SandboxPool, count: int) -> None:
    assert await _collect(folder, count, source, pool) == count
    sessions = list(read_sessions(folder))
    assert len(sessions) == count
    for number, session in enumerate(sessions):
        task = source.task(session.header.task_id)
        expected, _, competent = demonstrate(task, SEED_STRIDE + number, competence=0.5, settings=HARNESS)
        assert _content(session) == _content(expected.session), task.id
        assert session.header.recipe["competent"] == competent
        files = {path: text.encode() for path, text in task.files.items()}
        sandbox = await pool.create(SandboxSpec(files=files))
        assert await replay(session, sandbox) is None
        await sandbox.kill()
    assert len(list(read_sessions(folder, first=2))) == count - 2
    judged = [session.header.recipe["competent"] for session in read_sessions(folder)]
    assert 0 < sum(judged) < count


async def test_collection_goes_on_where_it_was_killed(
    tmp_path: Path, source: ExerciseSource, pool: SandboxPool
) -> None:
    assert await _collect(tmp_path, 6, source, pool) == 6
    before = {number: session_path(tmp_path, number).read_bytes() for number in range(6)}
    torn = session_path(tmp_path, 2)
    torn.write_bytes(before[2][: len(before[2]) // 2])
    session_path(tmp_path, 4).unlink()
    assert await _collect(tmp_path, 8, source, pool) == 4
    for number in (0, 1, 3, 5):
        assert session_path(tmp_path, number).read_bytes() == before[number]
    assert len(list(read_sessions(tmp_path))) == 8
    assert await _collect(tmp_path, 8, source, pool) == 0


@given(st.integers(0, 2**40), st.floats(0, 1), st.floats(0, 1), st.integers(0, 100_000))
def test_a_lowered_trigger_is_half_to_three_quarters_and_depends_on_seed_and_share_only(
    seed: int, share: float, other: float, trigger: int
) -> None:
    harness = HarnessSettings(summary_trigger_tokens=trigger, max_turns=7)

    def at(share: float) -> HarnessSettings:
        return summarizing(harness, SessionSettings(early_summaries=share), seed)

    lowered = at(1.0)
    assert trigger // 2 <= lowered.summary_trigger_tokens <= (3 * trigger + 3) // 4
    assert lowered.model_copy(update={"summary_trigger_tokens": trigger}) == harness  # nothing else differs
    assert at(0.0) == harness
    few, many = sorted((share, other))
    assert (at(few), at(many)) in ((harness, harness), (harness, lowered), (lowered, lowered))
    assert at(few) == at(few)


@pytest.mark.parametrize("share", [0.25, 0.4])
def test_early_summaries_is_the_share_of_sessions_and_their_triggers_differ(share: float) -> None:
    harness, settings = HarnessSettings(summary_trigger_tokens=220), SessionSettings(early_summaries=share)
    seeds = range(SEED_STRIDE, SEED_STRIDE + 2000)
    triggers = [summarizing(harness, settings, seed).summary_trigger_tokens for seed in seeds]
    lowered = [trigger for trigger in triggers if trigger != 220]
    assert len(lowered) / 2000 == pytest.approx(share, abs=0.05)
    assert min(lowered) < 115 and max(lowered) > 160 and len(set(lowered)) > 50


async def test_every_session_has_the_trigger_of_its_own_seed(
    tmp_path: Path, source: ExerciseSource, pool: SandboxPool
) -> None:
    harness, settings = HarnessSettings(summary_trigger_tokens=100_000), SessionSettings(count=12, early_summaries=0.5)
    await collect_sessions(source, settings, harness, None, pool, tmp_path, EventLog.null())
    found = [session.header.settings["summary_trigger_tokens"] for session in read_sessions(tmp_path)]
    seeds = range(SEED_STRIDE, SEED_STRIDE + 12)
    assert found == [summarizing(harness, settings, seed).summary_trigger_tokens for seed in seeds]
    assert 1 < len(set(found)) < 12


@pytest.mark.parametrize("name, passes", [("expert", True), ("nop", False), ("cheat", False)])
async def test_the_bench_opponents_score_what_they_should(
    source: ExerciseSource, pool: SandboxPool, name: str, passes: bool
) -> None:
    harness = HarnessSettings(max_session_tokens=4000, max_tokens_per_turn=4000)
    for seed, task_id in enumerate(source.ids("heldout")[:12]):
        task = source.task(task_id)
        setup = AttemptSetup(BASELINES[name](task, seed), pool, GRADERS, harness)
        result = await attempt(task, setup, seed=seed)
        assert result.verdict.passed == (passes and task.level != "relapse"), (task_id, result.verdict.reason)


@pytest.mark.parametrize("name", ["search_replace", "patch", "minimal"])
async def test_the_expert_solves_every_level_with_the_tools_of_any_preset(
    name: str, source: ExerciseSource, pool: SandboxPool
) -> None:
    """The expert leaves the reference, the cheats and the idle agent score 0, and no call of the expert fails."""
    harness = HarnessSettings.model_validate({"preset": name, **roomy(8192)})
    asked = preset_of(harness)
    for level in LEVELS:
        task = source.task(source.ids("train", level=level)[1])
        for agent, baseline in BASELINES.items():
            setup = AttemptSetup(partial(baseline, preset=asked), pool, GRADERS, harness)
            made = await attempt(task, setup, name=f"{level}-{agent}", seed=1)
            assert made.outcome.reason == "message", (level, agent, made.outcome.reason)
            won = agent == "expert" and LEVELS[level].winnable
            assert made.verdict.score == float(won), (level, agent, made.verdict)
            assert agent == "cheat" or not made.outcome.counters["failed_calls"], (level, agent)


async def test_a_careless_expert_spells_as_well_in_another_preset(source: ExerciseSource, pool: SandboxPool) -> None:
    harness = HarnessSettings.model_validate({"preset": "search_replace", **roomy(8192)})
    asked, solved = preset_of(harness), 0.0
    for seed, level in enumerate([*LEVELS, *LEVELS]):
        expert = Expert(source.task(source.ids("train", level=level)[seed]), seed, competence=0.0, preset=asked)
        setup = AttemptSetup(lambda task, seed, expert=expert: expert, pool, GRADERS, harness)
        made = await attempt(source.task(source.ids("train", level=level)[seed]), setup, name=f"{seed}", seed=seed)
        assert made.outcome.reason == "message" and not made.outcome.counters["failed_calls"], (level, seed)
        solved += made.verdict.score
    assert solved <= 2


def test_a_preset_without_a_tool_for_a_move_is_refused_by_name(source: ExerciseSource) -> None:
    blind = preset_of(HarnessSettings(preset="minimal", tools_off=("shell",)))
    with pytest.raises(
        NoSuchMove, match="has to search, and the preset minimal offers no tool for it: .* harness.tools_off"
    ):
        Expert(source.task(source.ids("train")[0]), 0, preset=blind)
