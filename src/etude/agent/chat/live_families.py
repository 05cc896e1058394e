"""The tokens that separate the parts of a real family's turn while it is sampled (`live.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from etude.agent.chat.chat_family import ChatFamily
from etude.agent.chat.hub_tokenizer import HubTokenizer
from etude.agent.chat.live import HarmonyTurn, LiveTurn, Part

_THINK = "<think>"


def live_turns(
    family: ChatFamily, tokenizer: HubTokenizer, generation: Sequence[int], stop_ids: Sequence[int]
) -> Callable[[], LiveTurn]:
    """Makes the readers of a family's turns. `generation` precedes each turn: it may have opened the thinking."""

    def id_of(word: str) -> int:
        return tokenizer.convert_tokens_to_ids(word)

    if family.name == "gpt-oss":
        return partial(
            HarmonyTurn,
            tokenizer.decode,
            opens=frozenset(map(id_of, ("<|start|>", "<|channel|>"))),
            body=id_of("<|message|>"),
            ends=frozenset(map(id_of, ("<|end|>", "<|return|>", "<|call|>"))),
        )
    # Whatever else a format has a token for belongs to its calls.
    marks: dict[int, Part | None] = {
        tokenizer.added[word]: "call" for word in family.markers if word in tokenizer.added
    }
    thought: dict[str, Part] = {_THINK: "thinking", family.think_end: "text"} if family.thinks else {}
    marks |= {tokenizer.added[word]: part for word, part in thought.items() if word in tokenizer.added}
    marks |= dict.fromkeys(stop_ids)
    opened = family.thinks and tokenizer.decode(generation).rstrip().endswith(_THINK)
    return partial(
        LiveTurn,
        tokenizer.decode,
        marks,
        begins="thinking" if opened else "text",
        think_end="" if family.think_end in tokenizer.added else family.think_end,
        call_begins="" if family.opener in tokenizer.added else family.call_begins,
    )
