"""The tokenizer of a GGUF file as a tokenizer.json: byte-level BPE with the pre-tokenizer that the file names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from etude.learn.weights.hf_files import CheckpointError

_CONTROL, _USER_DEFINED = 3, 4  # types of tokens
_QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# config.json's keys for the ids of special tokens, and the file's.
ID_KEYS = {
    "bos_token_id": "tokenizer.ggml.bos_token_id",
    "eos_token_id": "tokenizer.ggml.eos_token_id",
    "pad_token_id": "tokenizer.ggml.padding_token_id",
}
TEMPLATE = "tokenizer.chat_template"
_PRE_TOKENIZERS = ("smollm", "qwen2")


def read_tokenizer_of(metadata: Mapping[str, Any]) -> Tokenizer:
    """Raises CheckpointError for another kind of tokenizer, and for lists that do not fit together."""
    model, cut = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if model != "gpt2" or cut not in _PRE_TOKENIZERS:
        raise CheckpointError(
            f"the GGUF file's tokenizer is {model!r:.40} with the pre-tokenizer {cut!r:.40}; 'gpt2' with {' or '.join(_PRE_TOKENIZERS)} can be read"
        )
    words, kinds = _list(metadata, "tokens", str), _list(metadata, "token_type", int)
    merges = [tuple(pair.split(" ")) for pair in _list(metadata, "merges", str)]
    if len(kinds) != len(words) or len(set(words)) != len(words) or any(len(pair) != 2 for pair in merges):
        raise CheckpointError("the GGUF file's tokens, their types and its merges do not fit together; it is damaged")
    try:
        tokenizer: Any = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, merges))  # pyright: ignore[reportArgumentType]
    except Exception as error:
        raise CheckpointError(f"the GGUF file's merges are no BPE ({error}); it is damaged") from error
    tokenizer.pre_tokenizer = _pre_tokenizer(cut)
    tokenizer.decoder = decoders.ByteLevel()
    if cut == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    for word, kind in zip(words, kinds, strict=True):
        if kind in (_CONTROL, _USER_DEFINED):
            add = tokenizer.add_special_tokens if kind == _CONTROL else tokenizer.add_tokens
            add([AddedToken(word, special=kind == _CONTROL, normalized=False)])
    return tokenizer


def tokenizer_config(metadata: Mapping[str, Any], positions: int) -> dict[str, Any]:
    """The content of tokenizer_config.json: the special tokens by name."""
    words = _list(metadata, "tokens", str)
    named = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    ids = {name: metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in named.items()}
    marks = {name: words[number] for name, number in ids.items() if type(number) is int and number < len(words)}
    start = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    return start | {"model_max_length": positions} | marks


def _pre_tokenizer(cut: str) -> Any:
    if cut == "smollm":
        cuts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    else:
        words = pre_tokenizers.Split(Regex(_QWEN_WORDS), "isolated")
        cuts = [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    return pre_tokenizers.Sequence(cuts)  # pyright: ignore[reportArgumentType]


def _list(metadata: Mapping[str, Any], name: str, kind: type) -> list[Any]:
    found = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(found, list) or not all(type(value) is kind for value in found):
        raise CheckpointError(f"the GGUF file lacks tokenizer.ggml.{name} as a list of {kind.__name__}; it is damaged")
    return found
