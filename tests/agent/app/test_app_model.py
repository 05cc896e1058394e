"""An endpoint is asked for its models first: their window counts, and what keeps it from answering is one line."""

from __future__ import annotations

from typing import Any

import pytest
from app_lab import parrot, serving

from etude.agent.app.errors import UnavailableError
from etude.agent.app.model import ModelChoice, open_model
from etude.agent.policy.protocol import window_of


async def opened(model: dict[str, Any], **choice: Any) -> Any:
    with serving(parrot, model=model) as lab:
        found = await open_model(ModelChoice(lab.url, **choice))
        await found.close()
    return found


@pytest.mark.parametrize(
    ("row", "window"),
    [
        ({"max_model_len": 16_000}, 16_000),
        ({"context_length": 131_072}, 131_072),
        ({"context_length": 200_000, "top_provider": {"context_length": 131_072}}, 200_000),
        ({"meta": {"n_ctx": 9000, "n_ctx_train": 131_072}}, 9000),
        ({"max_model_len": 4096}, 4096),
        ({"max_model_len": None}, None),
        ({"max_model_len": "16000"}, None),
        ({"context_length": 0}, None),
        ({}, None),
    ],
)
async def test_the_window_is_what_the_list_of_models_says(row: dict[str, Any], window: int | None) -> None:
    model = await opened({"id": "fake", **row})
    assert window_of(model.policy) == window
    expected = 80_000 if window is None else window * 5 // 8
    assert model.settings.summary_trigger_tokens == expected
    assert model.settings.max_tokens_per_turn == (8192 if window is None else min(8192, window // 8))


async def test_the_persons_word_on_the_window_counts_more() -> None:
    model = await opened({"id": "fake", "max_model_len": 131_072}, context=16_000)
    assert window_of(model.policy) == 16_000


async def test_an_endpoint_behind_a_proxy_that_does_not_answer_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://me:secret@127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(UnavailableError, match="through the proxy HTTP_PROXY=http://127.0.0.1:9") as refused:
        await open_model(ModelChoice("http://10.255.255.1/v1"))
    assert "secret" not in str(refused.value)


async def test_a_socks_proxy_does_not_keep_this_machine_from_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    assert (await opened({"id": "fake"})).policy.name == "fake"
