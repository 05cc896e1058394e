"""A key that no header can carry: each verb that takes one refuses it before it asks anybody, and prints none of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from etude.cli.main import main

NOWHERE = "http://127.0.0.1:9/v1"
VERBS = [
    (["agent", "-m", NOWHERE, "-p", "go", "--no-index", "--sandbox", "none"], "OPENAI_API_KEY"),
    (["agent", "-m", NOWHERE, "-p", "go", "--json", "--key-env", "MINE", "--sandbox", "none"], "MINE"),
    (["capture", "serve", "--model", NOWHERE, "--port", "0"], "OPENAI_API_KEY"),
    (["capture", "serve", "--model", NOWHERE, "--port", "0"], "ETUDE_CAPTURE_KEY"),
    (["capture", "run", "--json", "--model", NOWHERE, "--", "true"], "OPENAI_API_KEY"),
    (["index", "build", ".", "--embed-url", NOWHERE, "--embed-model", "m"], "ETUDE_EMBEDDINGS_KEY"),
    (["bench", "run", "exercises", "--dry-run", "--policy", f"a={NOWHERE}#m"], "OPENAI_API_KEY"),
    (["bench", "run", "exercises", "--policy", f"a={NOWHERE}#m", "--out", "o"], "OPENAI_API_KEY"),
    (["tasks", "probe", "exercises", "--policy", f"{NOWHERE}#m"], "OPENAI_API_KEY"),
]


@pytest.mark.parametrize(("words", "variable"), VERBS, ids=lambda value: value if isinstance(value, str) else value[0])
@pytest.mark.parametrize("key", ["sk-made-up-123\n", "sk-\u201cmade-up-123\u201d"], ids=["newline", "quotes"])
def test_a_verb_refuses_a_key_that_no_header_can_carry_and_prints_none_of_it(
    words: list[str], variable: str, key: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture, tmp_path: Path
) -> None:  # fmt: skip
    monkeypatch.setenv(variable, key)
    monkeypatch.setenv("ETUDE_SESSIONS", str(tmp_path / "sessions"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["etude", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    said = "".join(capfd.readouterr())
    assert ended.value.code in (1, 2)
    assert variable in said and "can't be an API key" in said
    assert "made-up-123" not in said and "Traceback" not in said
