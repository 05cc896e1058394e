"""API keys: one that can't be a header's value is refused by its variable's name, and none stays in a text."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from etude.core.redact.keys import BadKey, MaskedRecord, _is_path, api_key, bearer, is_secret_name, mask_keys

INNER = "made-up-inner-part"


@pytest.mark.parametrize(
    ("key", "what"),
    [
        (f"sk-{INNER}\n", "a line break"),
        (f"\r\nsk-{INNER}", "a line break"),
        (f"sk-\u201c{INNER}\u201d", "a typographic quote"),
        (f"sk-{INNER} ", "a blank"),
        (f"sk-{INNER}\u00a0", "a blank"),
        (f"\ufeffsk-{INNER}", "no ASCII character"),
        (f"sk-{INNER}\x1b", "a control character"),
        (f"sk-{INNER}\udce9", "no ASCII character"),
    ],
)
def test_a_key_that_no_header_can_carry_is_refused_by_its_variables_name(
    monkeypatch: pytest.MonkeyPatch, key: str, what: str
) -> None:
    monkeypatch.setenv("SOME_VARIABLE", key)
    with pytest.raises(BadKey) as refused:
        bearer("SOME_VARIABLE")
    assert "SOME_VARIABLE" in str(refused.value) and what in str(refused.value)
    assert INNER not in str(refused.value)


def test_a_key_is_taken_as_it_is_and_none_is_no_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_VARIABLE", "sk-1")
    assert bearer("SOME_VARIABLE") == {"Authorization": "Bearer sk-1"}
    monkeypatch.delenv("SOME_VARIABLE")
    assert bearer("SOME_VARIABLE") == {}


@given(st.text(alphabet=st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=20, max_size=40))
def test_no_key_in_use_survives_in_a_text_in_any_spelling(key: str) -> None:
    assume(not _is_path(key))  # a file's name is no key, and errors name it (below)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOME_VARIABLE", key)
        api_key("SOME_VARIABLE")
        for text in (f"refused {key}!", f"b'Bearer {key}'", repr(f"x {key} y"), json.dumps({"x": f"a {key} y"})):
            shown = mask_keys(text)
            assert key not in shown and json.dumps(key)[1:-1] not in shown


def test_secrets_in_addresses_and_in_variables_called_so_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MADE_UP_TOKEN", INNER)
    assert mask_keys(f"it says {INNER}") == "it says [MADE_UP_TOKEN]"
    assert mask_keys("no proxy at http://me:hunter2@10.0.0.1:80/x") == "no proxy at http://[hidden]@10.0.0.1:80/x"
    assert mask_keys("POST http://h/v1?key=abc&n=1 failed") == "POST http://h/v1?key=[hidden]&n=1 failed"
    assert mask_keys("Illegal header value b'Bearer abc'") == "Illegal header value b'Bearer [hidden]'"


def test_words_of_ordinary_sentences_are_not_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    api_key("OPENAI_API_KEY")
    text = "none of these is an address: http://127.0.0.1:1/v1 (user@host)"
    assert mask_keys(text) == text


def test_a_line_of_a_log_holds_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MADE_UP_TOKEN", INNER)
    record = MaskedRecord("x", logging.WARNING, "f", 1, "says %s", (INNER,), None)
    assert record.getMessage() == "says [MADE_UP_TOKEN]"


def test_the_path_of_a_keys_file_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.touch()
    monkeypatch.setenv("TLS_PRIVATE_KEY", str(file))
    assert mask_keys(f"{file} can't be read") == f"{file} can't be read"


@pytest.mark.parametrize("name", ["GITHUB_PAT", "MY_KEY_2", "GITHUB_PAT_2", "DB_PWD", "NPM_CONFIG__AUTH", "X_BEARER"])
def test_whatever_is_kept_from_commands_is_masked(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, INNER)
    assert is_secret_name(name) and mask_keys(f"it says {INNER}") == f"it says [{name}]"


@pytest.mark.parametrize("name", ["Authorization", "Proxy-Authorization", "X-Auth", "x-api-key", "oauth", "authToken"])
def test_headers_that_hold_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["TOKENIZERS_PARALLELISM", "ETUDE_TOKENIZER", "GIT_AUTHOR_NAME", "PWD", "XAUTHORITY", "PATH"]
)
def test_names_that_only_resemble_a_secrets_are_none(name: str) -> None:
    assert not is_secret_name(name)


def test_bearer_tokens_are_masked_however_the_word_is_written() -> None:
    assert mask_keys("authorization: bearer x9") == "authorization: bearer [hidden]"
    assert mask_keys("BEARER abc.def") == "BEARER [hidden]"
    text = "Missing bearer or basic authentication; send a bearer token"
    assert mask_keys(text) == text


def test_a_traceback_in_a_log_holds_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MADE_UP_TOKEN", INNER)
    stream = io.StringIO()
    logger = logging.Logger("here")
    logger.addHandler(logging.StreamHandler(stream))
    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(MaskedRecord)
    try:
        try:
            raise ValueError(f"Illegal header value b'Bearer {INNER}'") from KeyError(INNER)
        except ValueError:
            logger.exception("it failed", stack_info=True)
        logger.warning("no traceback", exc_info=True)
    finally:
        logging.setLogRecordFactory(before)
    said = stream.getvalue()
    assert INNER not in said and "ValueError: Illegal header value b'Bearer [hidden]'" in said
    assert "KeyError: '[MADE_UP_TOKEN]'" in said and "no traceback\nNoneType: None\n" in said
