"""Which files of a hub repository make a checkpoint: config, tokenizer, templates, licence, and the safetensors that its index names; or an adapter:
its config and its tensors.

Pickle files (`.bin`, `.pt`) can run code when they are loaded and are never taken. Neither are copies of the weights in other formats.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from etude.learn.weights.adapter_folder import CONFIG as ADAPTER_CONFIG
from etude.learn.weights.adapter_folder import TENSORS as ADAPTER_TENSORS
from etude.learn.weights.hf_files import INDEX, SINGLE, listed_files
from etude.learn.weights.hub_name import HubError

CONFIG = "config.json"
COMPANIONS = (
    *("*.json", "*.jinja", "additional_chat_templates/*.jinja", "*.txt", "*.model", "*.tiktoken", "tokenization_*.py"),
    *("README.md", "LICENSE*", "LICENCE*", "NOTICE*"),
)
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".msgpack")
_SAFE_NAME = re.compile(r"(additional_chat_templates/)?[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True)
class HubFile:
    """A file of a repository. `digest` is the SHA-256 of its content (64 hex digits) or the SHA-1 of its git blob (40); empty if the hub was
    not asked, because the file is in the cache."""

    name: str
    size: int
    digest: str = ""

    def __post_init__(self) -> None:
        if self.digest and not _DIGEST.fullmatch(self.digest):
            raise HubError(
                f"the hub names {self.digest!r:.100} as the digest of {self.name}, which is none; try again later"
            )


def is_usable(name: str) -> bool:
    """Whether a file of that path can belong to a checkpoint: others lie in folders, or have names that no checkpoint has."""
    return _SAFE_NAME.fullmatch(name) is not None and not name.endswith("..")


def companions(files: Iterable[HubFile]) -> list[HubFile]:
    """Everything that is taken besides weights. The config is last: where it is, the others are."""
    found = [file for file in files if any(_matches(file.name, pattern) for pattern in COMPANIONS)]
    return sorted(found, key=lambda file: (file.name == ADAPTER_CONFIG, file.name == CONFIG, file.name))


def has_config(folder: Path) -> bool:
    """Whether a folder of the cache has what is downloaded last before the weights."""
    return any((folder / name).is_file() for name in (CONFIG, ADAPTER_CONFIG))


def weights(files: Iterable[HubFile], folder: Path) -> list[HubFile]:
    """The files of weights, as the index in `folder` names them, or the tensors of an adapter. Raises HubError for one that the repository lacks, and
    CheckpointError."""
    by_name = {file.name: file for file in files}
    if _is_adapter(by_name):
        return [by_name[ADAPTER_TENSORS]]
    wanted = listed_files(folder) if INDEX in by_name else [SINGLE]
    if absent := [name for name in wanted if name not in by_name]:
        raise HubError(
            f"the repository lacks {absent[0]}, which its {INDEX} names: it is incomplete; take another revision, or ask its owner"
        )
    return [by_name[name] for name in wanted]


def require_safetensors(name: str, files: Iterable[str]) -> None:
    """Raises HubError for a repository whose files are no checkpoint that can be loaded here; says what it has instead."""
    names = sorted(files)
    if _is_adapter(names):
        if ADAPTER_TENSORS not in names:
            raise HubError(
                f"{name} has {ADAPTER_CONFIG} and no {ADAPTER_TENSORS}, so its adapter can't be loaded: adapters in pickles (.bin) are not; save it "
                "as safetensors, or take another revision"
            )
        return
    if CONFIG not in names:
        raise HubError(
            f"{name} has no {CONFIG}, so it is no checkpoint in the Hugging Face format; take another repository"
        )
    if INDEX in names or SINGLE in names:
        return
    remedy = "take a revision or a repository with model.safetensors, or convert the weights"
    if pickles := [one for one in names if one.endswith(PICKLES)]:
        raise HubError(
            f"{name} has no safetensors: {pickles[0]} is a pickle, which can run code and is not loaded; {remedy}"
        )
    if other := [one for one in names if one.endswith((".gguf", ".safetensors"))]:
        raise HubError(f"{name} has neither {SINGLE} nor {INDEX}, only {other[0]}; {remedy}")
    raise HubError(f"{name} has no weights; {remedy}")


def _is_adapter(names: Collection[str]) -> bool:
    """Whether these files are an adapter. Next to whole weights one is left on the hub."""
    return ADAPTER_CONFIG in names and INDEX not in names and SINGLE not in names


def _matches(name: str, pattern: str) -> bool:
    return name.count("/") == pattern.count("/") and fnmatchcase(name, pattern) and not name.endswith(".bin.index.json")
