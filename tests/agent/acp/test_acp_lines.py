"""What an editor sends: any line is a message or is answered with an error, and the connection goes on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.acp import lines as module
from etude.agent.acp.lines import BadLine, JsonLineReader, pump

GOOD = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("[]", -32600), ('[{"jsonrpc": "2.0"}]', -32600), ("5", -32600), ('"x"', -32600), ("null", -32600), ("true", -32600),
        ("{", -32700), ("not json", -32700), ("[" * 100_000, -32700), ("\udcff", -32700),
        pytest.param('{"a": ' + "[" * 600 + "]" * 600 + "}", -32700, id="deep"), ('{"a": NaN}', -32700), ('{"a": 1e999}', -32700),
    ],
)  # fmt: skip
async def test_a_line_that_is_no_message_is_answered_and_the_next_one_is_read(line: str, code: int) -> None:
    editor, agent, said = asyncio.StreamReader(), asyncio.StreamReader(), bytearray()

    class Answers:
        def write(self, data: bytes) -> None:
            said.extend(data)

    editor.feed_data(line.encode(errors="surrogateescape") + b"\n\n" + json.dumps(GOOD).encode())  # and no line end
    editor.feed_eof()
    await pump(editor, agent, Answers())
    assert json.loads(await agent.read()) == GOOD
    error = json.loads(said)
    assert (error["id"], error["error"]["code"]) == (None, code)


@given(st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=2), max_size=4), st.data())
def test_messages_arrive_whole_however_their_bytes_are_cut(messages: list[Any], data: st.DataObject) -> None:
    stream = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
    lines, read = JsonLineReader(), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        read += lines.feed(stream[:cut])
        stream = stream[cut:]
    assert read == messages


def test_half_a_surrogate_pair_becomes_a_sign_for_it() -> None:
    [message] = JsonLineReader().feed(b'{"text": "half \\ud83d pair", "\\udce9": 1}\n')
    assert message == {"text": "half \ufffd pair", "\ufffd": 1}


def test_a_line_without_end_is_refused_once_and_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 100)
    lines = JsonLineReader()
    read = [message for _ in range(5) for message in lines.feed(b"x" * 60)]
    read += lines.feed(b"y\n" + json.dumps(GOOD).encode() + b"\n")
    assert isinstance(read[0], BadLine) and read[1:] == [GOOD]
