"""The agent over real chat formats: prompts only grow, forks are counted, sessions hold the same tokens, long histories are cheap."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.agent.harness.replay import replay
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.transcript import Transcript
from etude.agent.policy.protocol import Request
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.completion import Completion, SampledTokens
from etude.core.trace.entry import SessionHeader
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.session import Recorder

Make = Callable[..., Any]
FAMILIES = [
    "qwen3",
    "qwen3-coder",
    "qwen3.5",
    "kimi-k2",
    "kimi-k2.5",
    "deepseek-v3",
    "glm-4.5",
    "gpt-oss",
    "minimax-m2",
    "nemotron-3",
    "laguna-s-2.1",
    "hy3",
]
ROOMY = HarnessSettings(max_session_tokens=100_000, max_tokens_per_turn=4000)


def spoken(renderer: Any, script: list[Any]) -> list[list[int]]:
    """The script as a model samples it: formats that number calls go on counting."""
    made, turns = 0, []
    for item in script:
        turns.append(item if isinstance(item, list) else renderer.answer(item, first_call=made))
        made += len(renderer.parse(turns[-1], first_call=made).calls)
    return turns


def policy_of(renderer: Any, script: list[Any], seen: list[Request]) -> ScriptedPolicy:
    """Answers in tokens, as an engine does."""
    turns = spoken(renderer, script)

    def answer(request: Request) -> Completion:
        ids = turns[len(seen)]
        seen.append(request)
        return Completion(tokens=SampledTokens(ids, [-0.5] * len(ids), [3] * len(ids)))

    return ScriptedPolicy(answer, name="tokens", takes_tokens=True)


@pytest.mark.parametrize("name", FAMILIES)
async def test_prompts_only_grow_and_the_session_holds_the_same_segments(
    agent: Make, make_renderer: Make, scene: Any, name: str
) -> None:
    renderer, seen = make_renderer(name), []
    outcome = await agent(policy_of(renderer, [*scene.GOOD], seen), ROOMY, renderer=renderer).run()
    assert outcome.reason == "done" and outcome.counters["forks"] == 0
    held: tuple[int, ...] = ()
    said = spoken(renderer, [*scene.GOOD])
    for request, ids in zip(seen, said, strict=True):
        assert request.prompt_ids[: len(held)] == held  # promise 2
        held = (*request.prompt_ids, *ids)
    [segment] = outcome.segments
    assert segment.ids.tolist() == list(held)
    assert segment.sampled.sum() == sum(map(len, said))
    [stored] = outcome.session.segments()
    for part in ("ids", "sampled", "logprobs", "versions"):
        assert getattr(stored, part).tolist() == getattr(segment, part).tolist()


@pytest.mark.parametrize("name", ["qwen3", "kimi-k2.5", "gpt-oss"])
async def test_a_session_replays_to_the_same_ids(
    agent: Make, make_renderer: Make, make_sandbox: Make, scene: Any, name: str
) -> None:
    renderer = make_renderer(name)
    outcome = await agent(policy_of(renderer, [*scene.GOOD], []), ROOMY, renderer=renderer).run()
    assert await replay(outcome.session, make_sandbox(), renderer=renderer) is None


@pytest.mark.parametrize("name", FAMILIES)
async def test_demonstrations_have_the_format_of_rollouts(
    agent: Make, make_renderer: Make, make_sandbox: Make, scene: Any, name: str
) -> None:
    renderer = make_renderer(name)
    policy = policy_of(renderer, [*scene.GOOD], [])
    sampled = await agent(policy, ROOMY, renderer=renderer, sandbox=make_sandbox()).run()
    expert = await agent(scene.GOOD, ROOMY, renderer=renderer, sandbox=make_sandbox()).run()
    assert expert.segments[0].ids.tolist() == sampled.segments[0].ids.tolist()


@pytest.mark.parametrize("name", ["qwen3", "kimi-k2.5", "glm-4.5"])
async def test_a_self_summary_is_appended_to_its_own_context(
    agent: Make, make_renderer: Make, scene: Any, name: str
) -> None:
    renderer, seen = make_renderer(name), []
    asked = len(renderer.render([Message("user", scene.FACTS.instruction)], ()))
    small = ROOMY.model_copy(update={"summary_trigger_tokens": asked + 60, "max_summaries": 1})
    script = [scene.GOOD[0], scene.GOOD[1], Message("assistant", "bug: out -= x"), scene.GOOD[2], scene.done()]
    outcome = await agent(policy_of(renderer, script, seen), small, renderer=renderer).run()
    where = [bool(request.extra.get("summary")) for request in seen].index(True)
    before, query, after = seen[where - 1 : where + 2]
    assert query.prompt_ids[: len(before.prompt_ids)] == before.prompt_ids
    assert outcome.counters["summaries"] == 1 and outcome.counters["forks"] == 0
    first, second = outcome.segments
    assert second.ids.tolist()[: len(after.prompt_ids)] == list(after.prompt_ids)
    shared = len(renderer.render([Message("user", scene.FACTS.instruction)], (), generation=False))
    assert first.ids.tolist()[:shared] == second.ids.tolist()[:shared]
    assert [len(s.ids) for s in outcome.session.segments()] == [len(s.ids) for s in outcome.segments]


async def test_a_turn_that_can_not_be_continued_forks_and_is_counted(
    agent: Make, make_renderer: Make, scene: Any
) -> None:
    """An answer that ends inside its thinking can't be followed by anything as the family would write it."""
    renderer, seen = make_renderer("kimi-k2.5"), []
    unfinished = [*renderer._tokenizer.encode("hm, let me"), renderer.stop_ids[0]]
    script = [scene.GOOD[0], unfinished, scene.done()]
    outcome = await agent(policy_of(renderer, script, seen), ROOMY, renderer=renderer).run()
    assert outcome.counters["forks"] == 1 and outcome.counters["malformed_turns"] == 1
    assert len(outcome.session.of("fork")) == 1 and len(outcome.segments) == 2
    assert outcome.segments[1].ids.tolist()[: len(seen[2].prompt_ids)] == list(seen[2].prompt_ids)
    assert [s.ids.tolist() for s in outcome.session.segments()] == [s.ids.tolist() for s in outcome.segments]


async def test_malformed_turns_are_answered_and_stay_in_the_training_data(
    agent: Make, make_renderer: Make, scene: Any
) -> None:
    renderer, seen = make_renderer("qwen3"), []
    broken = renderer._tokenizer.encode(
        '<tool_call>\n{"name": "grep", "arguments": {"pattern": \n</tool_call><|im_end|>'
    )
    outcome = await agent(policy_of(renderer, [broken, scene.done()], seen), ROOMY, renderer=renderer).run()
    report = seen[1].messages[-1]
    assert report.role == "tool" and report.text == "malformed: bad JSON: the arguments of grep are no JSON"
    assert outcome.counters["forks"] == 0 and outcome.counters["malformed_turns"] == 1
    assert outcome.segments[0].sampled.sum() == len(broken) + len(renderer.answer(scene.done()))


async def test_tokens_of_results_are_counted_when_they_are_read(agent: Make, make_renderer: Make, scene: Any) -> None:
    renderer = make_renderer("kimi-k2")
    outcome = await agent(policy_of(renderer, [*scene.GOOD], []), ROOMY, renderer=renderer).run()
    results = [entry.data["text"] for entry in outcome.session.of("tool_result")]
    least = sum(len(renderer._tokenizer.encode(text)) for text in results)
    assert least < outcome.counters["tool_output_tokens"] < least + 60 * len(results)


async def test_long_texts_are_encoded_next_to_the_event_loop(make_renderer: Make, monkeypatch: Any) -> None:
    from etude.agent.harness import transcript

    moved: list[str] = []
    real_thread = asyncio.to_thread

    async def spy(work: Any, *arguments: Any) -> Any:
        moved.append(work.__name__)
        return await real_thread(work, *arguments)

    monkeypatch.setattr(transcript.asyncio, "to_thread", spy)
    grown = _transcript(make_renderer("kimi-k2"))
    await grown.prompt()
    _turn(grown, make_renderer("kimi-k2"), "x" * 100)
    await grown.prompt()
    assert moved == []
    _turn(grown, make_renderer("kimi-k2"), "x" * (transcript.INLINE_CHARS + 1))
    await grown.prompt()
    assert moved == ["bridge"]


@pytest.mark.parametrize("name", ["qwen3", "gpt-oss"])
async def test_a_turn_after_a_long_history_costs_what_the_first_ones_did(make_renderer: Make, name: str) -> None:
    """Rendering is incremental: only the copy of the prompt itself grows with the history."""
    renderer = make_renderer(name)
    grown = _transcript(renderer)
    await grown.prompt()
    seconds: list[float] = []
    for _ in range(300):
        start = time.process_time()
        _turn(grown, renderer, "out = 0\n" * 80)
        await grown.prompt()
        seconds.append(time.process_time() - start)
    early, late = sorted(seconds[5:45])[20], sorted(seconds[-40:])[20]
    assert len(grown.builder.open_ids) > 50_000
    assert late < 3 * early + 0.003  # seconds; on a free core 0.6 ms and 1.7 ms


# What may happen in a session, by letter: a turn (c: with calls, s: says something, b: broken, o: ends inside its thinking,
# l: cut off), then what comes before the next one (r: only what the turn asks for, u: a request too, q: the query for a
# self-summary, n: a new segment).
@settings(max_examples=25)
@given(steps=st.lists(st.tuples(st.sampled_from("ccsbol"), st.sampled_from("rrruqn")), min_size=1, max_size=6))
@pytest.mark.parametrize("name", ["qwen3", "qwen3.5", "kimi-k2.5", "deepseek-v3.1", "glm-4.5", "gpt-oss"])
def test_whatever_happens_a_prompt_continues_the_held_tokens_or_is_counted_as_a_fork(
    make_renderer: Make, name: str, steps: list[tuple[str, str]]
) -> None:
    asyncio.run(_session(make_renderer(name), steps))


async def _session(renderer: Any, steps: list[tuple[str, str]]) -> None:
    recorder = Recorder(SessionHeader("s"))
    grown = Transcript(recorder, renderer, ())
    grown.open([Message("system", "s"), Message("user", "go")])
    held: list[int] = []
    forks = 0
    for number, (kind, then) in enumerate(steps):
        prompt = await grown.prompt()
        assert prompt == await grown.prompt()
        forks += [*prompt[: len(held)]] != held
        ids = _sampled(renderer, kind, number)
        turn = grown.completion(Completion(tokens=SampledTokens(ids, [-1.0] * len(ids), [number] * len(ids))))
        assert sum(recorder.session.entries[-1].data["spoken"].values()) == len(ids)
        assert grown.builder.forks == forks
        held = [*prompt, *ids]
        assert grown.builder.open_ids == held
        for call in turn.calls:
            grown.result(Message("tool", "r <|im_end|>", call_id=call.id), call.name, False)
        if turn.problem:
            grown.result(Message("tool", f"malformed: {turn.problem}"), "", True)
        if then in "uq":
            grown.hear(Message("user", "and?", summary=then == "q"))
        if then == "n":
            grown.restart(Message("user", "so far", summary=True), {})
            held = [*grown.builder.open_ids]
    stored, built = recorder.session.segments(), grown.builder.segments()
    assert sorted(s.ids.tolist() for s in stored) == sorted(s.ids.tolist() for s in built)
    assert sum(int(s.sampled.sum()) for s in stored) == sum(int(s.sampled.sum()) for s in built)


def _sampled(renderer: Any, kind: str, number: int) -> list[int]:
    """What a model may say, well formed or not."""
    call = Message("assistant", "", calls=(ToolCall("c", "test", {}), ToolCall("d", "view", {"path": f"{number}"})))
    if kind == "s":
        return renderer.answer(Message("assistant", f"said {number}"))
    ids = renderer.answer(call, first_call=2 * number)
    if kind == "b":
        return [*ids[: len(ids) // 2], *ids[-1:]]
    if kind == "o":
        return [*renderer._tokenizer.encode("<think>hm, let me"), ids[-1]]
    return ids[:-2] if kind == "l" else ids


def _transcript(renderer: Any) -> Transcript:
    grown = Transcript(Recorder(SessionHeader("s")), renderer, ())
    grown.open([Message("user", "go")])
    return grown


def _turn(grown: Transcript, renderer: Any, result: str) -> None:
    said = Message("assistant", "", calls=(ToolCall("c", "test", {}),))
    ids = renderer.answer(said)
    turn = grown.completion(Completion(tokens=SampledTokens(ids, [0.0] * len(ids), [0] * len(ids))))
    grown.result(replace(Message("tool", result), call_id=turn.calls[0].id), "test", False)
