"""The agent: promises 1 (one harness), 2 (token in, token out), 3 (provenance) and 8 (faults distinguished), at its loop."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.agent.chat.nano import NanoRenderer
from etude.agent.harness.agent import Agent, build_agent
from etude.agent.harness.dependencies import AgentDependencies
from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.protocol import PolicyError, Request
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.completion import Completion, Usage
from etude.core.trace.message import Message
from etude.core.trace.segment import NO_ROUTE
from etude.sandbox.errors import SandboxDied

Make = Callable[..., Agent]


def texts(outcome: Any) -> list[str]:
    return [entry.data["text"] for entry in outcome.session.of("tool_result")]


async def test_a_task_is_worked_from_search_to_done(agent: Make, sandbox: Any, scene: Any) -> None:
    outcome = await agent(scene.GOOD).run()
    assert (outcome.reason, outcome.message) == ("done", "fixed")
    assert b"out += x" in sandbox.files["shop.py"]
    assert texts(outcome)[2:] == ["total([1, 2]) = -3, not 3 in 0s\nfail", "ok", "pass"]
    assert outcome.segments == []  # a text policy without a renderer has no tokens
    assert [e.type for e in outcome.session.entries[-2:]] == ["counters", "end"]


async def test_a_turn_without_calls_is_the_final_message(agent: Make) -> None:
    outcome = await agent([Message("assistant", "nothing to do")]).run()
    assert (outcome.reason, outcome.message) == ("message", "nothing to do")


async def test_parallel_calls_run_in_order_and_none_after_done(agent: Make, sandbox: Any, scene: Any) -> None:
    edit = ("edit", {"path": "log", "old": "", "new": "1"})
    outcome = await agent(
        [
            scene.turn(edit, ("view", {"path": "log"})),
            scene.turn(*scene.done().calls and (("done", {"message": "x"}), edit)),
        ]
    ).run()
    assert texts(outcome) == ["ok", "1"] and sandbox.files["log"] == b"1\n"
    assert outcome.counters["calls"] == 3


async def test_sampled_tokens_are_kept_as_they_are_and_every_prompt_extends_the_last(
    agent: Make, renderer: NanoRenderer, scene: Any
) -> None:
    """Promises 2 and 3."""
    policy, prompts = scene.token_policy(renderer, scene.GOOD), []
    complete = policy.complete

    async def spy(request: Request) -> Completion:
        prompts.append((request.prompt_ids, await complete(request)))
        return prompts[-1][1]

    policy.complete = spy  # type: ignore[method-assign]
    outcome = await agent(policy, renderer=renderer).run()
    [segment] = outcome.segments
    held: list[int] = []
    for version, (prompt, completion) in enumerate(prompts):
        assert list(prompt[: len(held)]) == held
        ids = completion.tokens.ids
        span = slice(len(prompt), len(prompt) + len(ids))
        assert segment.ids[span].tolist() == ids and segment.sampled[span].all()
        assert segment.logprobs[span].tolist() == completion.tokens.logprobs
        assert set(segment.versions[span]) == {version}
        held = [*prompt, *ids]
    assert segment.ids.tolist() == held
    assert segment.sampled.sum() == sum(len(c.tokens.ids) for _, c in prompts)
    assert renderer.loss_mask(held) == segment.sampled.tolist()
    assert segment.routes is not None and (segment.routes[:-1] != NO_ROUTE).all()
    assert (segment.routes[-1] == NO_ROUTE).all()  # the very last token was never forwarded


async def test_an_unusual_spelling_is_never_re_encoded(agent: Make, trained: NanoRenderer, scene: Any) -> None:
    """Promise 2 where it hurts: ids that spell `out -= x` letter by letter, which no encoder would write."""
    usual = trained.render_message(scene.turn(("grep", {"pattern": "out -= x"})))
    letters = [token for letter in "out -= x" for token in trained.render_message(Message("user", letter))[1:-1]]
    spelled = [usual[1], *letters, usual[-1]]
    assert trained.parse(spelled) == trained.parse(usual[1:]) and len(spelled) > len(usual) - 1
    outcome = await agent(scene.token_policy(trained, [spelled, scene.done()]), renderer=trained).run()
    [segment] = outcome.segments
    assert segment.ids[segment.sampled].tolist()[: len(spelled)] == spelled
    assert outcome.session.of("tool_result")[0].data["text"] == "shop.py:4 out -= x"


async def test_the_session_holds_the_same_segments_as_the_outcome(
    agent: Make, renderer: NanoRenderer, scene: Any
) -> None:
    few = scene.ROOMY.model_copy(update={"summary_trigger_tokens": 110})
    script = [scene.GOOD[0], Message("assistant", "total is in shop.py"), *scene.GOOD[1:]]
    outcome = await agent(scene.token_policy(renderer, script), few, renderer=renderer).run()
    assert len(outcome.segments) >= 2
    for ours, read in zip(outcome.segments, outcome.session.segments(), strict=True):
        for name in ("ids", "sampled", "logprobs", "versions", "routes"):
            assert np.array_equal(getattr(ours, name), getattr(read, name))


async def test_a_scripted_expert_with_a_renderer_gives_demonstrations_equal_to_sampled_sessions(
    agent: Make, make_sandbox: Callable[..., Any], renderer: NanoRenderer, scene: Any
) -> None:
    expert = await agent(scene.GOOD, renderer=renderer).run()
    model = await agent(scene.token_policy(renderer, scene.GOOD), renderer=renderer, sandbox=make_sandbox()).run()
    [demo], [rollout] = expert.segments, model.segments
    assert demo.ids.tolist() == rollout.ids.tolist() and demo.sampled.tolist() == rollout.sampled.tolist()
    assert (demo.versions == -1).all() and (demo.logprobs == 0).all() and demo.routes is None
    assert expert.counters == model.counters
    assert [e.data.get("message") for e in expert.session.of("completion")] == [
        e.data.get("message") for e in model.session.of("completion")
    ]


MALFORMED = st.lists(st.integers(0, 60), max_size=12)


@given(script=st.lists(MALFORMED, min_size=1, max_size=6))
@settings(max_examples=60)
async def test_whatever_a_policy_samples_stays_as_evidence(script: list[list[int]], scene: Any) -> None:
    """Promise 8: no token sequence raises, none is dropped, and the prompt stays well formed around it."""
    renderer = NanoRenderer(byte_tokenizer())
    policy = scene.token_policy(renderer, [*script, scene.done()])
    outcome = await build_agent(
        scene.ROOMY,
        policy,
        AgentDependencies(scene.Sandbox(scene.FILES, scene.run_tests), scene.FACTS, renderer=renderer),
    ).run()
    used = int(outcome.counters["turns"])
    expected = [token for ids in script[:used] for token in ids]
    sampled = [token for segment in outcome.segments for token in segment.ids[segment.sampled].tolist()]
    assert sampled[: len(expected)] == expected and len(outcome.segments) == min(1, len(sampled))
    for entry in outcome.session.of("completion"):
        assert entry.tokens is not None and entry.tokens.ids[-1] == renderer.stop_ids[0]


async def test_a_malformed_turn_runs_nothing_is_reported_and_counted(
    agent: Make, renderer: NanoRenderer, sandbox: Any, scene: Any
) -> None:
    call = renderer.render_message(scene.turn(("edit", {"path": "x", "old": "", "new": "1"})))[1:]
    broken = [*call[:-1], 7, call[-1]]  # one argument too many
    outcome = await agent(scene.token_policy(renderer, [broken, scene.done()]), renderer=renderer).run()
    assert texts(outcome) == ["malformed: edit takes 3 arguments, got 4"] and "x" not in sandbox.files
    assert outcome.counters["malformed_turns"] == 1 and outcome.counters["calls"] == 1
    assert outcome.segments[0].sampled.sum() == len(broken) + len(renderer.render_message(scene.done())) - 1


async def test_a_cut_off_turn_is_closed_outside_of_the_loss(agent: Make, renderer: NanoRenderer, scene: Any) -> None:
    outcome = await agent(scene.token_policy(renderer, [[50, 51], scene.done()]), renderer=renderer).run()
    entry = outcome.session.of("completion")[0]
    assert entry.tokens is not None and entry.tokens.ids[1:] == [50, 51, 2] and len(entry.tokens.logprobs) == 2
    assert texts(outcome) == [
        "your answer was cut off at 2 tokens, the limit of one turn; continue where it ended, or be briefer"
    ]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("fly", {}), "no tool fly"),
        (("view", {}), "view takes path"),
        (("test", {"x": "1"}), "test takes no arguments"),
        (("view", {"path": 3}), "path must be a string"),
        (("done", {}), "done takes message"),
    ],
)
async def test_a_bad_call_of_an_endpoint_is_answered_and_the_others_still_run(
    agent: Make, call: tuple[str, dict[str, Any]], words: str, scene: Any
) -> None:
    outcome = await agent([scene.turn(call, ("test", {})), scene.done()]).run()
    assert texts(outcome)[0] == words and texts(outcome)[1].endswith("fail")
    assert outcome.counters["failed_calls"] == 1


async def test_limits_end_a_session_as_evidence(agent: Make, renderer: NanoRenderer, scene: Any) -> None:
    looping = ScriptedPolicy(lambda request: scene.turn(("test", {})))
    outcome = await agent(looping, scene.ROOMY.model_copy(update={"max_turns": 3})).run()
    assert outcome.reason == "max_turns" and outcome.counters["turns"] == 3
    assert outcome.counters["repeated_calls"] == 2
    asked: list[int] = []

    def endless(request: Request) -> Message:
        asked.append(request.max_tokens)
        return scene.turn(("test", {}))

    tight = scene.ROOMY.model_copy(update={"max_session_tokens": 100, "max_turns": 50})
    outcome = await agent(ScriptedPolicy(endless), tight, renderer=renderer).run()
    assert outcome.reason == "max_tokens" and asked[0] == 100 - 11 - 1 and asked == sorted(asked, reverse=True)


async def test_infra_faults_are_raised_recorded_and_release_the_policy(agent: Make, sandbox: Any, scene: Any) -> None:
    released: list[str] = []

    class Broken(ScriptedPolicy):
        async def release(self, session_id: str) -> None:
            released.append(session_id)

    async def dead(path: str, **options: Any) -> bytes:
        raise SandboxDied("gone")

    sandbox.read = dead  # type: ignore[method-assign]
    running = agent(Broken([scene.turn(("view", {"path": "shop.py"}))]))
    with pytest.raises(SandboxDied):
        await running.run()
    session = running._recorder.session
    assert session.entries[-1].type == "fault" and session.entries[-1].data["kind"] == "SandboxDied"
    assert released == [session.header.session_id]


async def test_policy_trouble_is_distinguished(agent: Make) -> None:
    def refuse(infra: bool) -> ScriptedPolicy:
        def answer(request: Request) -> Message:
            raise PolicyError("no", infra=infra)

        return ScriptedPolicy(answer)

    assert (await agent(refuse(False)).run()).reason == "refused"
    with pytest.raises(PolicyError):
        await agent(refuse(True)).run()
    aborted = ScriptedPolicy(lambda request: Completion(Message("assistant", "x"), finish="abort"))
    with pytest.raises(PolicyError, match="aborted") as caught:
        await agent(aborted).run()
    assert caught.value.infra


async def test_long_tool_answers_are_cut_once(agent: Make, sandbox: Any, scene: Any) -> None:
    sandbox.files["long.py"] = b"\n".join(b"line %d" % i for i in range(100))
    outcome = await agent([scene.turn(("view", {"path": "long.py"})), scene.done()]).run()
    rows = texts(outcome)[0].split("\n")
    assert rows[:-1] == [f"line {i}" for i in range(24)] and rows[-1] == "[76 lines dropped]"


async def test_counters_tell_hygiene(agent: Make, scene: Any) -> None:
    edit = ("edit", {"path": "shop.py", "old": "out -= x", "new": "out += x"})
    script = [
        scene.turn(("todo", {"text": "add a"}), ("todo", {"text": "add b"}), ("todo", {"text": "done a"})),
        scene.turn(("view", {"path": "shop.py"}), ("view", {"path": "shop.py"}), ("view", {"path": "gone"})),
        scene.turn(("test", {}), edit, ("view", {"path": "shop.py"})),
        scene.done(),
    ]
    counts = (await agent(script).run()).counters
    expected = {"turns": 4, "calls": 10, "calls_todo": 3, "calls_view": 4, "failed_calls": 1, "repeated_calls": 1}
    expected |= {"edits": 1, "tests_run": 1, "tests_passed": 0, "edits_untested": 1, "tested_after_last_edit": 0}
    expected |= {"todos_opened": 2, "todos_unfinished": 1, "summaries": 0, "forks": 0}
    assert {name: counts[name] for name in expected} == expected
    tested = (await agent([scene.turn(("test", {})), scene.done()]).run()).counters
    assert set(tested) == set(counts) and tested["tested_after_last_edit"] == 0
    assert (await agent(scene.GOOD[2:]).run()).counters["edits"] == 0  # the edit is already scene.done in this sandbox


async def test_token_kinds_feed_the_length_penalty(agent: Make, renderer: NanoRenderer, scene: Any) -> None:
    counts = (await agent(scene.GOOD, renderer=renderer).run()).counters
    assert counts["thinking_tokens"] == len("look") and counts["message_tokens"] == len("fixed<")  # "<": the end marker
    outcome = await agent(scene.GOOD, renderer=renderer).run()
    assert outcome.counters["tool_output_tokens"] == sum(
        len(e.tokens.ids) for e in outcome.session.of("tool_result") if e.tokens
    )
    sampled = outcome.segments[0].sampled.sum()
    assert sampled == sum(outcome.counters[f"{kind}_tokens"] for kind in ("thinking", "call", "message"))


SMALL = HarnessSettings(max_session_tokens=8000, max_tokens_per_turn=400, summary_trigger_tokens=150, max_summaries=2)


async def test_a_full_segment_is_summarized_and_the_next_starts_from_request_summary_and_state(
    agent: Make, renderer: NanoRenderer, scene: Any
) -> None:
    todo = scene.turn(("todo", {"text": "add check main"}), ("view", {"path": "shop.py"}))
    script = [scene.GOOD[0], todo, Message("assistant", "bug: out -= x"), scene.GOOD[2], scene.done()]
    requests: list[Request] = []
    policy = scene.token_policy(renderer, script)
    complete = policy.complete

    async def spy(request: Request) -> Completion:
        requests.append(request)
        return await complete(request)

    policy.complete = spy  # type: ignore[method-assign]
    outcome = await agent(policy, SMALL, renderer=renderer).run()
    assert outcome.reason == "done" and outcome.counters["summaries"] == 1 and outcome.counters["turns"] == 4
    assert [bool(r.extra.get("summary")) for r in requests] == [False, False, True, False, False]
    first, second = outcome.segments
    query = renderer.render_message(Message("user", "", summary=True))
    spoken = renderer.render_message(Message("assistant", "bug: out -= x"))
    assert first.ids.tolist()[-len(query) - len(spoken) :] == [*query, *spoken]  # appended: the KV cache is reused
    assert first.sampled[-len(spoken) + 1 :].all()  # the summary is trained on
    carried = Message("user", "bug: out -= x\nsummary 1\ntodo check main", summary=True)
    prefix = renderer.render_prefix([Message("user", scene.FACTS.instruction), carried], ())
    assert second.ids.tolist()[: len(prefix)] == prefix and not second.sampled[: len(prefix)].any()
    assert outcome.counters["summary_tokens"] == len(spoken) - 1
    assert outcome.session.of("summary")[0].parent == 0


async def test_text_policies_are_summarized_too(agent: Make, scene: Any) -> None:
    seen: list[tuple[Message, ...]] = []

    def answer(request: Request) -> Completion:
        seen.append(request.messages)
        if request.extra.get("summary"):
            return Completion(Message("assistant", "did things"), usage=Usage(900, 0, 9))
        if len(seen) == 4:
            return Completion(scene.done())
        return Completion(scene.turn(("test", {})), usage=Usage(input_tokens=400 * len(seen), output_tokens=9))

    full = HarnessSettings.full(summary_trigger_tokens=600)
    outcome = await agent(ScriptedPolicy(answer), full).run()
    assert outcome.counters["summaries"] == 1 and outcome.reason == "done"
    assert seen[2][-1].summary and "summarize" in seen[2][-1].text
    assert [m.role for m in seen[3]] == ["system", "user", "user"]
    assert seen[3][2].text == "did things\nsummary 1"


async def test_summaries_never_run_away(agent: Make, renderer: NanoRenderer, scene: Any) -> None:
    """A request longer than the trigger still gets a turn in every segment, and summaries are bounded."""
    facts = replace(scene.FACTS, instruction="x" * 200)
    policy = ScriptedPolicy(lambda r: Message("assistant", "s") if r.extra.get("summary") else scene.turn(("test", {})))
    outcome = await agent(policy, SMALL, renderer=renderer, facts=facts).run()
    assert outcome.counters["summaries"] == 2 and outcome.counters["turns"] == SMALL.max_turns
    assert len(outcome.segments) == 3


@pytest.mark.parametrize(
    ("words", "carried"),
    [("", ""), ("bug: out", "bug: out"), ("bug: out -= x", "bug: out -= x")],
    ids=["empty", "cut off", "whole"],
)
async def test_a_summary_is_carried_on_as_it_is_and_trained_on_and_what_is_broken_is_counted(
    agent: Make, renderer: NanoRenderer, scene: Any, words: str, carried: str
) -> None:
    """None is refused: the cost of a poor summary to the rollout teaches better ones."""
    said = renderer.render_message(Message("assistant", words))[1:]
    said = said[:-1] if words == "bug: out" else said  # without its end marker
    script = [scene.GOOD[0], scene.GOOD[1], said, scene.done()]
    outcome = await agent(scene.token_policy(renderer, script), SMALL, renderer=renderer).run()
    assert outcome.session.of("summary")[0].data["text"] == carried
    assert outcome.counters["summaries"] == 1 and outcome.counters["broken_summaries"] == (words != "bug: out -= x")
    first = outcome.segments[0]
    spoken = np.flatnonzero(first.versions == 2)  # its third answer is the summary
    assert first.ids[spoken].tolist() == said and first.sampled[spoken].all()


async def test_calls_in_a_summary_turn_are_not_run(
    agent: Make, renderer: NanoRenderer, sandbox: Any, scene: Any
) -> None:
    script = [
        scene.GOOD[0],
        scene.GOOD[1],
        scene.turn(("edit", {"path": "x", "old": "", "new": "1"}), text="so far"),
        scene.done(),
    ]
    outcome = await agent(scene.token_policy(renderer, script), SMALL, renderer=renderer).run()
    assert "x" not in sandbox.files and outcome.session.of("summary")[0].data["text"] == "so far"


def test_a_token_policy_without_a_renderer_is_refused(renderer: NanoRenderer, sandbox: Any, scene: Any) -> None:
    with pytest.raises(ValueError, match="takes tokens: give build_agent the renderer"):
        build_agent(scene.ROOMY, scene.token_policy(renderer, []), AgentDependencies(sandbox, scene.FACTS))


async def test_call_ids_are_unique_in_a_session_with_tokens(agent: Make, renderer: NanoRenderer, scene: Any) -> None:
    outcome = await agent(scene.GOOD, renderer=renderer).run()
    calls = [c["id"] for e in outcome.session.of("completion") for c in e.data["message"].get("calls", ())]
    assert calls == [f"c{i}" for i in range(len(calls))]


async def test_the_harness_itself_costs_under_a_millisecond_a_turn(
    make_sandbox: Callable[..., Any], renderer: NanoRenderer, scene: Any
) -> None:
    """Policy and tools taken off; the best of several sessions, so that a loaded machine doesn't decide."""
    best = 1.0
    for _ in range(20):
        running = build_agent(
            scene.ROOMY, ScriptedPolicy(scene.GOOD), AgentDependencies(make_sandbox(), scene.FACTS, renderer=renderer)
        )
        start = time.perf_counter()
        seconds = (await running.run()).seconds
        own = time.perf_counter() - start - seconds["policy"] - seconds["tools"]
        best = min(best, own / len(scene.GOOD))
    assert best < 0.001
