"""A rollout that no limit leaves room for is refused before the run, and a run of such rollouts stops, each time by the setting's name."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recording import RecordingObserver
from run_in_threads import a_run, live

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.agent.chat.nano import NanoRenderer
from etude.agent.harness.opening import first_prompt
from etude.agent.harness.settings import HarnessSettings
from etude.core.trace.segment import Rollout, Segment
from etude.rl.groups import RolloutGroup
from etude.rl.preflight import LimitsTooSmall, Starvation, Window, _no_room, check_prompts, sample_of
from etude.rl.settings import RlSettings
from etude.rollout.attempt import task_facts
from etude.tasks.task import Task

ROOMY = Window(4096, 4096)


def task(instruction: str, name: str = "t") -> Task:
    return Task(name, "debugging", "one-bug", instruction, {"a.py": "x = 1\n"}, ("true",), "mine")


@pytest.fixture(scope="module")
def renderer() -> NanoRenderer:
    return NanoRenderer(byte_tokenizer())


def check(renderer, tasks, harness=None, window=ROOMY, **settings):
    observer = RecordingObserver()
    chosen = RlSettings.model_validate(settings)
    asyncio.run(check_prompts(tasks, chosen, harness or HarnessSettings(), window, renderer, observer))
    return observer.notes


def test_a_first_prompt_that_fills_the_session_is_refused_with_the_number_to_set(renderer):
    long = task("fix " + "a word " * 100)
    tokens = len(asyncio.run(first_prompt(HarnessSettings(), task_facts(long), renderer)))
    least = tokens + 33  # a short turn, and one that ends a turn which is cut off
    assert check(renderer, [long], HarnessSettings(max_session_tokens=least)) == []
    with pytest.raises(
        LimitsTooSmall, match=rf"has {tokens} tokens, .* set harness.max_session_tokens to at least {tokens + 97}"
    ):
        check(renderer, [long], HarnessSettings(max_session_tokens=least - 1))


def test_low_effort_halves_the_session_and_is_measured_too(renderer):
    long, harness = task("fix " + "a word " * 100), HarnessSettings(max_session_tokens=1000)
    assert check(renderer, [long], harness, efforts={"medium": 1.0}) == []
    with pytest.raises(LimitsTooSmall, match=r"may hold 500 \(at effort low\): set harness.max_session_tokens"):
        check(renderer, [long], harness, efforts={"medium": 1.0, "low": 1.0})
    assert check(renderer, [long], harness, efforts={"medium": 1.0, "low": 0.0}) == []


def test_the_engine_or_the_model_is_named_where_it_is_the_limit(renderer):
    long, harness = task("fix " + "a word " * 100), HarnessSettings(max_session_tokens=100_000)
    with pytest.raises(LimitsTooSmall, match="the engine holds 300: set engine.max_len to at least"):
        check(renderer, [long], harness, Window(300, 4096))
    with pytest.raises(LimitsTooSmall, match="the model's context window ends at 300 tokens"):
        check(renderer, [long], harness, Window(4096, 300))


@given(prompt=st.integers(1, 300), turn=st.integers(1, 300), engine=st.integers(1, 600), model=st.integers(1, 600))
def test_what_the_remedy_names_leaves_room_for_a_turn(prompt, turn, engine, model):
    harness = HarnessSettings(max_tokens_per_turn=turn, max_session_tokens=100_000)
    why = _no_room(prompt, harness, Window(engine, model))
    fits = prompt + min(32, turn) <= model
    if why is None:
        assert fits and prompt + min(32, turn) <= engine
    elif "set engine.max_len to at least" in why:
        length = int(why.rsplit(" ", 1)[1])
        assert fits and engine < length <= model and _no_room(prompt, harness, Window(length, model)) is None
        assert length == min(prompt + 1 + turn, model)
    else:
        assert not fits and f"context window ends at {model} tokens" in why


def test_a_few_tasks_that_are_too_long_are_named_and_do_not_stop_the_run(renderer):
    tasks = [task("fix it", f"s{n}") for n in range(3)] + [task("a word " * 400, "long")]
    (note,) = check(renderer, tasks)
    assert note.startswith("1 of 4 sampled tasks leave a rollout no room: the first prompt of task long has")
    with pytest.raises(LimitsTooSmall, match="2 of 4 sampled tasks"):
        check(renderer, [*tasks[1:], task("a word " * 400, "longer")])


@pytest.mark.parametrize("count", [1, 15, 16, 17, 100])
def test_the_sample_is_spread_over_the_schedule(count):
    ids = [str(n) for n in range(count)]
    sample = sample_of(ids)
    assert len(sample) == min(16, count) == len(set(sample)) and sample[0] == "0"
    assert int(sample[-1]) >= 15 * count // 16


def test_a_run_whose_prompts_have_no_room_is_refused_before_a_process_starts(checkpoint, tmp_path):
    run = a_run(checkpoint, tmp_path)
    with pytest.raises(LimitsTooSmall, match="harness.max_session_tokens"):
        live(replace(run, harness=HarnessSettings(max_session_tokens=5)))
    assert not (tmp_path / "weights").exists()


def group(end: str, turns: int = 0, calls: int = 0, index: int = 0) -> RolloutGroup[Rollout]:
    counters = {"turns": float(turns), "calls": float(calls)}
    rollouts = [Rollout(str(n), "t", index, [], {"outcome": 0.0}, counters, {"end": end}) for n in range(2)]
    return RolloutGroup(index, "t", 2, 0, dict(enumerate(rollouts)))


def starvation(observer: RecordingObserver) -> Starvation:
    settings = RlSettings.model_validate({"groups_per_step": 3, "group_size": 2})
    return Starvation(settings, HarnessSettings(), Window(1024, 2048), observer)


@pytest.mark.parametrize(
    ("end", "named"),
    [("max_tokens", "raise harness.max_session_tokens"), ("refused", "set engine.max_len to at least")],
)
def test_a_step_of_rollouts_without_a_token_stops_the_run_by_the_setting(end, named):
    look = starvation(RecordingObserver())
    for _ in range(2):
        look.look(group(end))
    with pytest.raises(LimitsTooSmall, match=f"all 6 rollouts of the last 3 groups .* {named}"):
        look.look(group(end))


def test_one_group_that_gets_to_a_call_or_an_answer_is_no_starvation():
    look = starvation(RecordingObserver())
    for end, calls in (
        ("max_tokens", 0),
        ("max_tokens", 0),
        ("done", 1),
        ("max_tokens", 0),
        ("max_tokens", 0),
        ("message", 0),
    ):
        look.look(group(end, calls=calls))


def test_a_step_of_rollouts_that_are_cut_off_before_a_call_stops_the_run_too():
    look = starvation(RecordingObserver())
    sampled = np.ones(3, bool)
    cut = Segment(np.zeros(3, np.int32), sampled, np.zeros(3, np.float32), np.zeros(3, np.int32))
    with pytest.raises(
        LimitsTooSmall, match="before the first tool call: raise harness.max_session_tokens, which is 640"
    ):
        for _ in range(3):
            found = group("max_tokens", turns=1)
            for rollout in found.members:
                rollout.segments.append(cut)
            look.look(found)


def test_a_policy_that_uses_up_its_turns_without_a_call_is_noted_once_and_goes_on():
    observer = RecordingObserver()
    look = starvation(observer)
    full = Segment(np.zeros(192, np.int32), np.ones(192, bool), np.zeros(192, np.float32), np.zeros(192, np.int32))
    for _ in range(7):
        found = group("max_turns", turns=2)
        for rollout in found.members:
            rollout.segments.append(full)
        look.look(found)
    (note,) = observer.notes
    assert "every turn cut off at 96 tokens: raise harness.max_tokens_per_turn" in note
