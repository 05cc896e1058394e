"""The model card of a checkpoint: `README.md` with front matter, as model hubs read it.

It says what the checkpoint was made from and by which stages, and how to load it; what no stage measured is not in it. The front matter's key `etude`
carries the stages from one checkpoint to the next.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from etude.core.bounded_yaml import YamlRefused, loads
from etude.core.trace.unicode import whole
from etude.learn.weights.adapter_folder import adapted_checkpoint

CARD = "README.md"
LICENCE_KEYS = ("license", "license_name", "license_link")
MOST_CARD_BYTES = 1 << 20
_MOST_WORDS = 500  # characters of one entry
_FENCE = "---"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_CACHED = re.compile(r"models--(.+?)--(.+)")  # the folder of a repository in the hub's cache


@dataclass(frozen=True)
class Training:
    """One stage that changed the weights: its name, and what it learned from."""

    stage: str
    data: str


@dataclass(frozen=True)
class CheckpointOrigin:
    """What a checkpoint was made from. `base` is empty for a model that was drawn here."""

    base: str = ""
    licence: tuple[tuple[str, str], ...] = ()  # LICENCE_KEYS of the base's own card
    stages: tuple[Training, ...] = ()


def origin_of(folder: Path) -> CheckpointOrigin:
    """Of a checkpoint directory: as its card says if we wrote it, else the directory is the base itself. An adapter is a stage after its base's."""
    if (joined := adapted_checkpoint(folder)) is not None:
        origin, adapter = origin_of(joined.base), joined.adapter
        return replace(
            origin, stages=(*origin.stages, Training("adapter", f"{adapter.parent.name}/{adapter.name}, merged"))
        )
    matter = _front_matter(folder / CARD)
    licence = tuple((key, str(matter[key])[:_MOST_WORDS]) for key in LICENCE_KEYS if isinstance(matter.get(key), str))
    own = matter.get("etude")
    if not isinstance(own, Mapping) or not isinstance(own.get("stages"), list):
        return CheckpointOrigin(_name_of(folder), licence)
    stages = [row for row in own["stages"] if isinstance(row, Mapping)]
    base = matter.get("base_model")
    return CheckpointOrigin(
        base if isinstance(base, str) else "",
        licence,
        tuple(Training(str(row.get("stage"))[:_MOST_WORDS], str(row.get("data"))[:_MOST_WORDS]) for row in stages),
    )


def card(origin: CheckpointOrigin, config: Mapping[str, Any], tokens: int | None) -> str:
    """The text of README.md. `config` is the content of config.json, `tokens` the size of the tokenizer if there is one. The text
    has an encoding in UTF-8, whatever the base's card and folder names hold."""
    import yaml

    matter: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": ["etude"]}
    if origin.base:
        matter["base_model"] = origin.base
    matter |= dict(origin.licence)
    matter["etude"] = {"stages": [asdict(stage) for stage in origin.stages]}
    head = yaml.safe_dump(whole(matter), sort_keys=False, allow_unicode=True)
    parts = [f"{_FENCE}\n{head}{_FENCE}", "# Model card", _made(origin), _vocabulary(config, tokens), _LOAD]
    return whole("\n\n".join([*parts, _licence(origin)]) + "\n")


_LOAD = """## How to load it

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("DIRECTORY")
tokenizer = AutoTokenizer.from_pretrained("DIRECTORY")
prompt = tokenizer.apply_chat_template([{"role": "user", "content": "..."}], add_generation_prompt=True)
```

The chat template is `chat_template.jinja` or in `tokenizer_config.json`. `etude model check DIRECTORY` proves the directory,
`etude agent -m DIRECTORY` works with it."""


def _made(origin: CheckpointOrigin) -> str:
    start = f"The base model is {origin.base}." if origin.base else "The weights were drawn at random and trained here."
    if not origin.stages:
        return f"## How it was made\n\n{start} No stage has trained it since."
    rows = "\n".join(f"| {_cell(stage.stage)} | {_cell(stage.data)} |" for stage in origin.stages)
    return (
        f"## How it was made\n\n{start} These stages trained it, in this order:\n\n| stage | data |\n|---|---|\n{rows}"
    )


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _vocabulary(config: Mapping[str, Any], tokens: int | None) -> str:
    rows = config["vocab_size"]
    said = f"The embedding and the head have {rows:,} rows each"
    if tokens is not None:
        said += f", the tokenizer has {tokens:,} tokens"
        said += f": {rows - tokens:,} rows are padding, which no token names" if rows > tokens else ""
    return f"## Vocabulary\n\n{said}."


def _licence(origin: CheckpointOrigin) -> str:
    known = dict(origin.licence).get("license")
    if known:
        said = f"The base model's card names the licence {known}."
    elif origin.base:
        said = "The base model's card names no licence: look it up before you publish these weights."
    else:
        said = "No licence is chosen yet: choose one before you publish these weights."
    return f"## Licence\n\n{said}"


def _name_of(folder: Path) -> str:
    """The hub's name of a base model where its folder or its config tells, else the folder's."""
    folder = folder.resolve()
    for part in folder.parts:
        if (cached := _CACHED.fullmatch(part)) is not None:
            return "/".join(cached.groups())
    named = _read_name(folder / "config.json")
    return named if _HUB_NAME.fullmatch(named) else folder.name


def _read_name(path: Path) -> str:
    from etude.learn.weights.hf_files import CheckpointError, read_object

    try:
        return str(read_object(path).get("_name_or_path", ""))
    except CheckpointError:  # a base whose config can't be read is refused where it is loaded
        return ""


def _front_matter(path: Path) -> Mapping[str, Any]:
    """Empty where there is none that can be read: a card is words for people."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_CARD_BYTES).decode("utf-8-sig", errors="replace")
    except OSError:
        return {}
    first, _, rest = text.replace("\r\n", "\n").partition("\n")
    matter, end, _ = rest.partition(f"\n{_FENCE}")
    if first.rstrip() != _FENCE or not end:
        return {}
    try:
        found = loads(matter)
    except YamlRefused:
        return {}
    return found if isinstance(found, Mapping) else {}
