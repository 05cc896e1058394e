"""A tokenizer that needs no training: the special tokens, then one token per byte. For tests and first runs."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models

from etude.agent.chat.special import SPECIAL_TOKENS


def byte_tokenizer() -> Tokenizer:
    """Lossless on any text; 288 entries."""
    words = [*SPECIAL_TOKENS, *(f"<0x{byte:02X}>" for byte in range(256))]
    model = models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[], byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])  # pyright: ignore
    return tokenizer
