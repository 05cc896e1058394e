"""What SDKs ask in addition to turns: counts of tokens and who answers."""

from __future__ import annotations

from typing import Any, Callable

import openai
from captured import BASH, Serve, TokenPolicy  # pyright: ignore[reportMissingImports]

from etude.agent.policy.scripted import EchoPolicy
from etude.core.trace.message import Message

BODY: dict[str, Any] = {
    "model": "m",
    "system": "You fix.",
    "messages": [{"role": "user", "content": "Fix a.py"}],
    "tools": [{"name": "bash", "description": "Run", "input_schema": BASH["function"]["parameters"]}],
}


async def test_counted_tokens_are_those_of_the_prompt_that_is_then_sampled(
    served: Serve, make_renderer: Callable[..., Any]
) -> None:
    renderer = make_renderer("qwen3")
    policy = TokenPolicy(renderer, lambda request: Message("assistant", "Done."))
    async with served(policy, renderer) as endpoint:
        session, key = await endpoint.session()
        counted = await endpoint.http.post("/v1/messages/count_tokens", json=BODY, headers={"x-api-key": key})
        assert session.counters()["turns"] == 0 and policy.requests == []
        await endpoint.http.post("/v1/messages", json={**BODY, "max_tokens": 9}, headers={"x-api-key": key})
    assert counted.json() == {"input_tokens": len(policy.requests[0].prompt_ids)}


async def test_without_the_model_s_tokenizer_a_count_is_of_the_right_size(served: Serve) -> None:
    async with served(EchoPolicy()) as endpoint:
        _, key = await endpoint.session()
        said = "many words " * 4000
        body = {**BODY, "messages": [{"role": "user", "content": said}]}
        counted = await endpoint.http.post("/v1/messages/count_tokens", json=body, headers={"x-api-key": key})
    assert 0.2 < counted.json()["input_tokens"] / len(said) < 0.3


async def test_counting_asks_for_a_key_and_refuses_what_a_turn_would_refuse(served: Serve) -> None:
    async with served(EchoPolicy()) as endpoint:
        _, key = await endpoint.session()
        strange = await endpoint.http.post("/v1/messages/count_tokens", json=BODY)
        refused = await endpoint.http.post(
            "/v1/messages/count_tokens", json={**BODY, "top_k": 5}, headers={"x-api-key": key}
        )
    assert strange.status_code == 401 and strange.json()["type"] == "error"
    assert refused.status_code == 400 and "top_k" in refused.json()["error"]["message"]


async def test_a_model_is_reported_in_the_shape_of_both_makers_and_any_name_is_found(served: Serve) -> None:
    async with served(EchoPolicy()) as endpoint:
        _, key = await endpoint.session()
        client = openai.AsyncOpenAI(base_url=f"{endpoint.address}/v1", api_key=key)
        assert (await client.models.retrieve("openai/any")).id == "openai/any"
        result = (await endpoint.http.get("/v1/models")).json()
        assert (await endpoint.http.head("/")).status_code == 200
    (row,) = result["data"]
    assert row["object"] == row["type"] == "model" and row["display_name"] == row["id"] == result["first_id"] == "echo"
    assert result["has_more"] is False
