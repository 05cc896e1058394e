"""Which of a tokenizer's special tokens mark the parts of a document for fill-in-the-middle."""

from __future__ import annotations

from tokenizers import Tokenizer

from etude.agent.chat.special import FIM_MIDDLE, FIM_PREFIX, FIM_SUFFIX
from etude.learn.corpus.shape.fim import FimTokens, Special

# Prefix, suffix and middle as open models name them: ours and Qwen's, StarCoder's, DeepSeek's, Code Llama's.
NAMES = (
    (FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),
)


class NoFimTokens(Exception):
    """The tokenizer can't mark the parts of a document."""


def fim_tokens(tokenizer: Tokenizer) -> FimTokens:
    """By id. Raises NoFimTokens."""
    for names in NAMES:
        ids = [number for name in names if (number := tokenizer.token_to_id(name)) is not None]
        if len(ids) == len(names):
            return FimTokens(*map(Special, ids))
    raise NoFimTokens(
        f"the tokenizer has no tokens for fill-in-the-middle (such as {FIM_PREFIX}): set corpus.fim_rate to 0, "
        "or add them with `etude tokenizer extend --fim`"
    )
