"""How long a model sees its own thinking: a setting of the harness, kept token for token over requests and words on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from etude.agent.harness.dependencies import renderer_for
from etude.agent.harness.header import session_header
from etude.agent.harness.inbox import Inbox
from etude.agent.harness.replay import replay
from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.protocol import Request
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.completion import Completion, SampledTokens
from etude.core.trace.message import Message, ToolCall

Make = Callable[..., Any]
THINKING = [
    "qwen3",
    "qwen3.5",
    "qwen3.6",
    "qwen3.8",
    "kimi-k2.5",
    "glm-4.5",
    "glm-5",
    "glm-5.3",
    "gpt-oss",
    "minimax-m2",
    "nemotron-3",
    "nemotron-3.5",
    "laguna-s-2.1",
]
KEEPING = {"qwen3.8", "glm-5.3", "laguna-s-2.1"}
ALWAYS = {"laguna-s-2.1"}  # nothing that is asked for drops it
# Thinking is dropped at the user's next word, or, here, only once an answer was final: a steering word drops none.
FINAL = {"kimi-k2.5", "gpt-oss"}
# Templates with an option to keep it: bridges append the same text that they would render.
KEEPS_THINKING = {"qwen3.6", "qwen3.8", "glm-5", "glm-5.3", "nemotron-3", "nemotron-3.5", "laguna-s-2.1"}
PLAIN = ["qwen3-coder", "kimi-k2", "deepseek-v3", "laguna-xs-2.1", "hy3"]
ROOMY: dict[str, Any] = {"max_session_tokens": 100_000, "max_tokens_per_turn": 4000}


def thought(text: str, *calls: tuple[str, dict[str, Any]], say: str = "") -> Message:
    return Message("assistant", say, text, tuple(ToolCall(f"c{n}", *call) for n, call in enumerate(calls)))


SCRIPT = [
    thought("Where is it?", ("grep", {"pattern": "total"})),
    thought("There.", ("view", {"path": "shop.py"})),  # steered before this one's answer is read
    thought("The user wants more.", ("view", {"path": "main.py"})),
    thought("Done, I think.", say="It adds now."),  # then a further request
    thought("Again.", ("test", {})),
    thought("Green.", say="Checked."),
]


def session(renderer: Any, seen: list[Request], thinks: bool = True) -> tuple[ScriptedPolicy, Inbox]:
    """Two requests, the first one steered on the way. The policy answers in tokens."""
    inbox, made, turns = Inbox(), 0, list[list[int]]()
    for said in SCRIPT:
        turns.append(
            renderer.answer(said if thinks else Message("assistant", said.text, calls=said.calls), first_call=made)
        )
        made += len(said.calls)

    def answer(request: Request) -> Completion:
        ids = turns[len(seen)]
        seen.append(request)
        if len(seen) == 2:
            inbox.say("steer", "look at main.py as well")
        if len(seen) == 4:
            inbox.say("queue", "and the tests?")
            inbox.close()
        return Completion(tokens=SampledTokens(ids, [-0.5] * len(ids), [3] * len(ids)))

    return ScriptedPolicy(answer, name="tokens", takes_tokens=True), inbox


@pytest.mark.parametrize("family", THINKING)
@pytest.mark.parametrize("kept", ["family", "cycle", "all"])
async def test_prompts_are_what_the_format_says_and_only_dropped_thinking_forks(
    agent: Make, make_renderer: Make, make_sandbox: Make, family: str, kept: Any
) -> None:
    renderer, seen = make_renderer(family, None), list[Request]()
    policy, inbox = session(renderer, seen)
    settings = HarnessSettings(thinking=kept, **ROOMY)
    outcome = await agent(policy, settings, renderer=renderer, inbox=inbox).run()
    turns = [turn.data["message"]["thinking"].strip() for turn in outcome.session.of("completion")]
    assert turns == [said.thinking for said in SCRIPT]
    everything = kept == "all" or family in ALWAYS or (kept == "family" and family in KEEPING)
    assert outcome.counters["forks"] == (0 if everything else 1 if family in FINAL else 2)
    assert len(outcome.segments) == 1 + int(outcome.counters["forks"])

    as_used, held = renderer_for(renderer, settings), ()
    for request in seen:
        if family in KEEPS_THINKING or not everything:
            assert list(request.prompt_ids) == as_used.render(request.messages, request.tools), "token for token"
        if everything:
            assert request.prompt_ids[: len(held)] == held
        held = request.prompt_ids
    shown = renderer._tokenizer.decode(list(seen[-1].prompt_ids))
    assert ("Where is it?" in shown) == everything and ("The user wants more." in shown) == everything
    assert "Again." in shown, "within the cycle it stays"
    assert await replay(outcome.session, make_sandbox(), renderer=renderer) is None


@pytest.mark.parametrize("family", PLAIN)
async def test_a_family_without_thinking_never_forks_at_a_word_of_the_users(
    agent: Make, make_renderer: Make, family: str
) -> None:
    renderer, seen = make_renderer(family, None), list[Request]()
    policy, inbox = session(renderer, seen, thinks=False)
    outcome = await agent(policy, HarnessSettings(**ROOMY), renderer=renderer, inbox=inbox).run()
    assert outcome.counters["forks"] == 0 and len(outcome.segments) == 1
    assert renderer.keeping("cycle") is renderer
    for before, after in zip(seen, seen[1:], strict=False):
        assert after.prompt_ids[: len(before.prompt_ids)] == before.prompt_ids
    for request in seen:
        assert list(request.prompt_ids) == renderer.render(request.messages, request.tools)


def test_how_long_thinking_stays_is_part_of_the_harness_hash(make_renderer: Make, scene: Any) -> None:
    def hashed(family: str, kept: Any) -> str:
        settings = HarnessSettings.full(preset="search_replace", thinking=kept)
        policy = ScriptedPolicy([])
        return session_header(settings, policy, scene.FACTS, renderer=make_renderer(family, None)).harness

    assert hashed("qwen3", "cycle") != hashed("qwen3", "all")
    facts = [
        session_header(HarnessSettings(thinking=kept), ScriptedPolicy([]), scene.FACTS, renderer=r).harness_facts
        for kept in ("cycle", "all")
        for r in (make_renderer("qwen3", None),)
    ]
    assert facts[0]["chat"] != facts[1]["chat"] and facts[0]["settings"] == facts[1]["settings"]


def test_the_laptop_models_format_has_no_thinking_to_keep(renderer: Any) -> None:
    assert renderer.keeping("all") is renderer.keeping("cycle") is renderer
