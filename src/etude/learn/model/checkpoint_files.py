"""What a checkpoint holds besides its config and weights: tokenizer, chat template, generation configuration, model card.

What the checkpoint before had is carried over byte by byte, unless training changed what it says: the ids of special tokens, the number of positions,
the chat format. What it lacked is written, so that other programs load the checkpoint without guessing:

- `tokenizer_config.json`: without it transformers guesses a tokenizer class, which may add tokens for which the model has no rows.
- `chat_template.jinja`: of the laptop format. A base model of another format brings its own, or has none.
- `generation_config.json`: where a turn ends.
- `README.md`: the model card (`card.py`).

Rows and tokens: config.json's `vocab_size` is the number of rows of the embedding and the head. A tokenizer never has more tokens. A base may
have more rows (padding for the hardware): they stay, bit by bit, since engines, deltas and later extensions count on the shape.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from etude.agent.chat.load import load_renderer, read_json
from etude.agent.chat.nano_template import nano_template
from etude.agent.chat.special import BOS, CHAT_TOKENS, END, PAD
from etude.agent.chat.tokenizer_file import read_tokenizer
from etude.core.trace.unicode import whole
from etude.learn.model.card import CARD, CheckpointOrigin, Training, card, origin_of
from etude.learn.weights.adapter_folder import innermost_base
from etude.learn.weights.hf_files import CheckpointError

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
GENERATION = "generation_config.json"
# Keys of config.json that belong to the tokenizer rather than to the network: without them readers never stop generating.
TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
# The same vocabulary in former formats; they are stale once tokenizer.json has more tokens.
TIKTOKEN = "tiktoken.model"  # Kimi's, which has no tokenizer.json
_VOCABULARIES = ("vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", TIKTOKEN, "added_tokens.json")
_CARRIED = ("special_tokens_map.json", TEMPLATE, "chat_template.json", "additional_chat_templates/*.jinja")
_LICENCES = ("LICENSE*", "LICENCE*", "NOTICE*", "tokenization_*.py")
_MOST_BYTES = 256 << 20  # of one file


@dataclass(frozen=True)
class Companions:
    """Where they come from. `source` is the checkpoint before, or a folder that holds a tokenizer; `tokenizer` takes the place of that one."""

    source: Path | None = None
    tokenizer: Tokenizer | None = None
    trained: Training | None = None

    def write(self, folder: Path, config: Mapping[str, Any], positions: int) -> None:
        """Into `folder`, whose config.json has the content `config`. Raises CheckpointError for a tokenizer with more tokens than rows."""
        tokens = self._write_tokenizer(folder, config["vocab_size"])
        before = {} if self.source is None else read_json(self.source / "config.json")
        nano = tokens is not None and all(token in tokens for token in CHAT_TOKENS)
        if tokens is not None or (folder / TIKTOKEN).is_file():
            self._write_tokenizer_config(folder, config, before, tokens or {}, positions, nano=nano)
        self._write_generation_config(folder, config, before)
        text = card(self._origin(before), config, None if tokens is None else len(tokens))
        (folder / CARD).write_text(text, encoding="utf-8")

    def _write_tokenizer(self, folder: Path, rows: int) -> dict[str, int] | None:
        """The tokenizer's files as they are; ids by token, None without a tokenizer."""
        if self.source is not None:
            source = innermost_base(self.source)
            kept = () if self.tokenizer is not None else (TOKENIZER, *_VOCABULARIES)
            for name in (*kept, *_CARRIED, *_LICENCES):
                for file in _own_files(source, name):
                    target = folder / file.relative_to(source)
                    target.parent.mkdir(exist_ok=True)
                    shutil.copyfile(file, target)
        if self.tokenizer is not None:
            self.tokenizer.save(str(folder / TOKENIZER))
        if not (folder / TOKENIZER).is_file():
            return None
        tokens = read_tokenizer(folder / TOKENIZER).get_vocab(with_added_tokens=True)
        if tokens and max(tokens.values()) >= rows:
            raise CheckpointError(
                f"the tokenizer has the id {max(tokens.values())}, and the model {rows} rows: they do not belong together; add rows with "
                "`etude tokenizer extend`, or take the tokenizer that the model was trained with"
            )
        return tokens

    def _write_tokenizer_config(
        self,
        folder: Path,
        config: Mapping[str, Any],
        before: Mapping[str, Any],
        tokens: Mapping[str, int],
        positions: int,
        *,
        nano: bool,
    ) -> None:
        file = None if self.source is None else self.source / TOKENIZER_CONFIG
        found = read_json(file) if file is not None else {}
        if found:
            changed = dict(found)
            if before and before.get("max_position_embeddings") != config["max_position_embeddings"]:
                changed["model_max_length"] = positions
        else:
            changed = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
            changed |= {"model_max_length": positions} | _marks(config, tokens)
        if nano:
            changed |= {"bos_token": BOS, "eos_token": END, "pad_token": PAD}
            changed.pop("chat_template", None)
            (folder / "special_tokens_map.json").unlink(missing_ok=True)  # it would name those of the former format
            (folder / TEMPLATE).write_text(nano_template(), encoding="utf-8")
        if file is not None and changed == found:
            shutil.copyfile(file, folder / TOKENIZER_CONFIG)
        else:
            _write_json(folder / TOKENIZER_CONFIG, changed)

    def _write_generation_config(self, folder: Path, config: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        file = None if self.source is None else self.source / GENERATION
        named = {key: config[key] for key in TOKEN_IDS if config.get(key) is not None}
        if file is None or not file.is_file():
            if "eos_token_id" not in named and (stops := _stop_ids(folder)):
                named["eos_token_id"] = stops
            return _write_json(folder / GENERATION, named)
        found = read_json(file)
        inner = before.get("text_config")
        former = inner if isinstance(inner, Mapping) and "vocab_size" not in before else before
        changed = found | {key: value for key, value in named.items() if former.get(key) != value}
        if changed == found:
            shutil.copyfile(file, folder / GENERATION)
        else:
            _write_json(folder / GENERATION, changed)

    def _origin(self, before: Mapping[str, Any]) -> CheckpointOrigin:
        origin = origin_of(self.source) if self.source is not None and before else CheckpointOrigin()
        return origin if self.trained is None else replace(origin, stages=(*origin.stages, self.trained))


def _own_files(folder: Path, pattern: str) -> Iterator[Path]:
    """The folder's files of that name. A link may lead into the hub's cache, where a snapshot's files are links; other links out of the folder are
    left: what they lead to would be published with the checkpoint; so are links that lead nowhere. Raises CheckpointError for a file that is too
    large."""
    root = folder.resolve()
    for path in sorted(folder.glob(pattern)):
        try:
            place = path.resolve()
            size = place.stat().st_size if place.is_file() else None
        except (OSError, RuntimeError):  # a loop of links, or a folder that is closed
            continue
        inside = place.is_relative_to(root) or place.parent == root.parent.parent / "blobs"
        if size is None or not (inside or pattern == TOKENIZER):
            continue
        if size > _MOST_BYTES:
            raise CheckpointError(
                f"{path} has {size:,} bytes, and of {pattern} at most {_MOST_BYTES:,} are carried over into a checkpoint; remove or replace it"
            )
        yield path


def _marks(config: Mapping[str, Any], tokens: Mapping[str, int]) -> dict[str, str]:
    """The special tokens whose ids config.json names; of several ends the first."""
    words = {number: token for token, number in tokens.items()}
    found: dict[str, str] = {}
    for key in TOKEN_IDS:
        number = config.get(key)
        number = number[0] if isinstance(number, list) and number else number
        if isinstance(number, int) and number in words:
            found[key.removesuffix("_id")] = words[number]
    return found


def _stop_ids(folder: Path) -> list[int]:
    """Where the chat format's turns end; empty for a format that is not known here."""
    try:
        return sorted(load_renderer(folder).stop_ids)
    except (ValueError, OSError):  # UnknownFamily is a ValueError
        return []


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(whole(content), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
