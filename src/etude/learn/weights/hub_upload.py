"""What `etude model push DIR OWNER/NAME` does: a checkpoint or an adapter of this machine as one commit of a hub repository.

The commit holds the files that a download would take, or those of an adapter. Shards of former weights are deleted by the same commit, so that
no reader mixes two models; the hub's history keeps them. Nothing of the repository changes unless the whole commit is accepted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError

from etude.learn.weights.adapter_folder import CONFIG as ADAPTER_CONFIG
from etude.learn.weights.adapter_folder import TENSORS, base_name, is_adapter
from etude.learn.weights.hf_files import CheckpointError, read_object
from etude.learn.weights.hub_errors import hub_errors
from etude.learn.weights.hub_files import HubFile, companions, is_usable, require_safetensors, weights
from etude.learn.weights.hub_name import HubError, HubName, hub_name, parse_hub_name
from etude.learn.weights.hub_progress import readable_bytes

WEIGHTS = ".safetensors"


@dataclass(frozen=True)
class HubUpload:
    """What is to be uploaded. `base` is the hub name that an adapter's config gets as its base, empty for a checkpoint."""

    folder: Path
    name: HubName
    files: tuple[HubFile, ...]
    base: str = ""

    def document(self) -> dict[str, Any]:
        listed = [{"name": file.name, "bytes": file.size} for file in self.files]
        return {
            "folder": str(self.folder), "repository": self.name.repository, "revision": self.name.revision, "base": self.base or None,
            "files": listed, "bytes": sum(file.size for file in self.files),
        }  # fmt: skip

    def text(self) -> str:
        what = f"an adapter of {self.base}" if self.base else "a checkpoint"
        return f"{what}, {len(self.files)} files, {readable_bytes(sum(file.size for file in self.files))}"


def plan_upload(folder: Path, text: str, base: str | None = None) -> HubUpload:
    """Which files of `folder` make a repository. Raises HubError and CheckpointError for a directory that is not one to upload; asks no network."""
    name = parse_hub_name(text)
    if name.commit:
        raise HubError(f"{text} names a commit, and a commit can't be written; give a branch, or the name alone")
    if not folder.is_dir():
        raise HubError(f"{folder} is no directory; give a checkpoint's or an adapter's")
    found = [_file(folder, path) for path in sorted(folder.rglob("*")) if path.is_file()]
    found = [file for file in found if is_usable(file.name)]
    if is_adapter(folder):
        return HubUpload(folder, name, tuple(_adapter_files(folder, found)), _public_base(folder, base))
    if base is not None:
        raise HubError(f"--base {base} is for an adapter, and {folder} holds no {ADAPTER_CONFIG}")
    require_safetensors(str(folder), (file.name for file in found))
    return HubUpload(folder, name, (*companions(found), *weights(found, folder)))


def upload(plan: HubUpload, *, public: bool, message: str) -> str:
    """Makes the repository where there is none, private unless `public`, and commits; the commit's address. Raises HubError."""
    if not get_token():
        raise HubError(f"no token: set HF_TOKEN to one of {constants.ENDPOINT} that may write {plan.name.repository}")
    api, repository = HfApi(), plan.name.repository
    revision = plan.name.revision
    with hub_errors(plan.name, "write"):
        api.create_repo(repository, private=not public, exist_ok=True)
        if revision != constants.DEFAULT_REVISION:
            api.create_branch(repository, branch=revision, exist_ok=True)
        held = {one.rfilename for one in api.model_info(repository, revision=revision).siblings or []}
        stale = _stale(plan, held)
        operations = [_addition(plan, file) for file in plan.files] + [CommitOperationDelete(one) for one in stale]
        try:
            return api.create_commit(repository, operations, commit_message=message, revision=revision).commit_url
        except HfHubHTTPError:
            raise
        # Of the storage of large files, whose addresses have passwords in them.
        except (RuntimeError, ValueError) as error:
            raise HubError(
                f"the upload to {plan.name} failed and nothing was committed: {_cause(error)}; run the same command again"
            ) from None


def _cause(error: Exception) -> str:
    """Without the addresses that the library's text of an HTTP error has."""
    text, cause = str(error).partition("\n")[0], error.__cause__
    if isinstance(cause, HfHubHTTPError):
        return f"{text} HTTP {cause.response.status_code}"
    return f"{text} ({type(cause or error).__name__})"


def _stale(plan: HubUpload, held: set[str]) -> list[str]:
    """Weights of the repository that are not of this checkpoint. Raises HubError where one of the two is an adapter."""
    whole = sorted(one for one in held if one.endswith(WEIGHTS) and "/" not in one and one != TENSORS)
    if (TENSORS in held and not plan.base) or (whole and plan.base):
        has = "whole weights" if plan.base else "an adapter"
        raise HubError(
            f"{plan.name} holds {has}, and {plan.folder} is {plan.text()}: a repository has one of them; give another name or branch"
        )
    return [one for one in whole if one not in {file.name for file in plan.files}]


def _addition(plan: HubUpload, file: HubFile) -> CommitOperationAdd:
    path = plan.folder / file.name
    if not plan.base or file.name != ADAPTER_CONFIG:
        return CommitOperationAdd(file.name, path)
    config = read_object(path) | {"base_model_name_or_path": plan.base}
    return CommitOperationAdd(file.name, json.dumps(config, indent=2).encode())


def _adapter_files(folder: Path, found: list[HubFile]) -> list[HubFile]:
    if not (folder / TENSORS).is_file():
        raise CheckpointError(
            f"{folder} has {ADAPTER_CONFIG} and no {TENSORS}: it is incomplete; save the adapter again"
        )
    return [*companions(found), *(file for file in found if file.name == TENSORS)]


def _public_base(folder: Path, base: str | None) -> str:
    """The hub name of an adapter's base: given, or as its config names it. Raises HubError for a path, which other machines do not have."""
    named = base or base_name(folder)
    found = hub_name(named) if named else None
    if found is None:
        what = f"--base {base}" if base else f"{folder / ADAPTER_CONFIG} names the base {named!r:.200}, which"
        raise HubError(
            f"{what} is no hub name, so no other machine could load the adapter: give the base's with --base OWNER/NAME"
        )
    return str(found)


def _file(folder: Path, path: Path) -> HubFile:
    return HubFile(path.relative_to(folder).as_posix(), path.stat().st_size)
