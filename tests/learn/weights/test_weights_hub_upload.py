"""A checkpoint or an adapter goes to a hub as one commit, comes back bit by bit, and nothing changes there where it can't go whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import HubServer, serve
from huggingface_hub import constants

from etude.learn.weights import hub
from etude.learn.weights.hf_files import CheckpointError
from etude.learn.weights.hub_name import HubError, HubName
from etude.learn.weights.hub_upload import plan_upload, upload

CHECKPOINT = {
    "config.json": b'{"model_type": "llama"}', "tokenizer.json": b"{}", "README.md": b"# card", "LICENSE": b"free",
    "model.safetensors": bytes(range(256)) * 40, "additional_chat_templates/tools.jinja": b"{{ tools }}",
}  # fmt: skip
LEFT_OUT = {"optimizer.pt": b"o", "state/step.json": b"{}", "old-00001-of-00002.safetensors": b"x"}
ADAPTER = {
    "adapter_config.json": b'{"base_model_name_or_path": "runs/my/sft", "r": 4}',
    "adapter_model.safetensors": b"ab" * 99,
}


class Silent:
    def on_start(self, files: int, size: int) -> None: ...
    def on_bytes(self, count: int) -> None: ...


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with serve(tmp_path / "cache", monkeypatch) as found:
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", "hf_writes")
        yield found


def written(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def push(folder: Path, name: str = "me/mine", base: str | None = None, public: bool = False) -> str:
    return upload(plan_upload(folder, name, base), public=public, message="first")


def held(server: HubServer, name: str = "me/mine", branch: str = "main") -> dict[str, bytes]:
    repository = server.repositories[name]
    return {k: v for k, v in repository.commits[repository.branches[branch]].items() if k != ".gitattributes"}


def test_a_checkpoint_goes_up_as_one_private_commit_and_comes_back_bit_by_bit(
    server: HubServer, tmp_path: Path
) -> None:
    folder = written(tmp_path / "made", CHECKPOINT | LEFT_OUT)
    address = push(folder)
    assert held(server) == CHECKPOINT and server.messages == ["first"]
    assert server.made[0]["visibility"] == "private" and address.startswith(f"{server.url}/me/mine/commit/")
    fetched = hub.fetch(hub.resolve(HubName("me/mine")), Silent())
    assert {name: (fetched / name).read_bytes() for name in CHECKPOINT} == CHECKPOINT
    push(folder, "me/open", public=True)
    assert server.made[1]["visibility"] == "public"


def test_shards_of_former_weights_are_deleted_by_the_commit_that_replaces_them(
    server: HubServer, tmp_path: Path
) -> None:
    shards = {f"model-0000{n}-of-00002.safetensors": bytes([n]) * 500 for n in (1, 2)}
    index = {"model.safetensors.index.json": json.dumps({"weight_map": dict(zip("ab", shards, strict=True))}).encode()}
    small = {name: content for name, content in CHECKPOINT.items() if name != "model.safetensors"}
    push(written(tmp_path / "whole", CHECKPOINT))
    push(written(tmp_path / "shards", small | shards | index))
    assert held(server) == small | shards | index
    assert len(server.repositories["me/mine"].commits) == 3


def test_a_branch_is_made_and_main_stays_as_it_is(server: HubServer, tmp_path: Path) -> None:
    folder = written(tmp_path / "made", CHECKPOINT)
    push(folder)
    (folder / "README.md").write_bytes(b"# other")
    push(folder, "me/mine@next")
    assert held(server)["README.md"] == b"# card" and held(server, branch="next")["README.md"] == b"# other"


def test_an_adapter_names_a_base_that_others_have(server: HubServer, tmp_path: Path) -> None:
    folder = written(tmp_path / "adapter", ADAPTER)
    with pytest.raises(HubError, match=r"names the base 'runs/my/sft', which is no hub name.* --base OWNER/NAME"):
        plan_upload(folder, "me/mine")
    with pytest.raises(HubError, match=r"--base runs/my/sft is no hub name"):
        plan_upload(folder, "me/mine", "runs/my/sft")
    assert plan_upload(folder, "me/mine", "hub:owner/model").base == "owner/model"
    push(folder, base="owner/model")
    sent = held(server)
    assert json.loads(sent["adapter_config.json"]) == {"base_model_name_or_path": "owner/model", "r": 4}
    assert sent["adapter_model.safetensors"] == ADAPTER["adapter_model.safetensors"]
    assert (folder / "adapter_config.json").read_bytes() == ADAPTER["adapter_config.json"], (
        "the directory stays as it is"
    )


def test_an_adapter_never_replaces_whole_weights_nor_they_an_adapter(server: HubServer, tmp_path: Path) -> None:
    whole, adapter = written(tmp_path / "whole", CHECKPOINT), written(tmp_path / "adapter", ADAPTER)
    push(whole)
    with pytest.raises(HubError, match="me/mine holds whole weights, and .* is an adapter of owner/model"):
        push(adapter, base="owner/model")
    push(adapter, "me/adapter", base="owner/model")
    with pytest.raises(HubError, match="me/adapter holds an adapter, and .* is a checkpoint"):
        push(whole, "me/adapter")
    assert held(server) == CHECKPOINT and len(server.messages) == 2


def test_an_upload_that_is_refused_halfway_commits_nothing_and_the_next_one_goes_on(
    server: HubServer, tmp_path: Path
) -> None:
    folder = written(tmp_path / "made", CHECKPOINT)
    server.refused_uploads = 1
    with pytest.raises(
        HubError,
        match="upload to me/mine failed and nothing was committed: [^/]*model.safetensors[^/]* HTTP 403; run the same command again",
    ):
        push(folder)
    assert held(server) == {}
    push(folder)
    assert held(server) == CHECKPOINT


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_hub_that_refuses_is_one_line_that_says_what_the_token_must_allow(
    server: HubServer, tmp_path: Path, status: int
) -> None:
    server.status = status
    with pytest.raises(HubError) as raised:
        push(written(tmp_path / "made", CHECKPOINT))
    text = str(raised.value)
    assert "hf_writes" not in text and "\n" not in text
    assert ("a token that may write it" in text) == (status != 500) and ("HTTP 500" in text) == (status == 500)


def test_without_a_token_nothing_is_asked(server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(HubError, match="no token: set HF_TOKEN to one of http.* that may write me/mine"):
        push(written(tmp_path / "made", CHECKPOINT))
    assert not server.requests


def test_what_is_no_checkpoint_is_refused_before_the_network(server: HubServer, tmp_path: Path) -> None:
    with pytest.raises(HubError, match="is no directory"):
        plan_upload(tmp_path / "absent", "me/mine")
    with pytest.raises(HubError, match="has no config.json"):
        plan_upload(written(tmp_path / "a", {"model.safetensors": b"x"}), "me/mine")
    with pytest.raises(HubError, match="--base owner/model is for an adapter"):
        plan_upload(written(tmp_path / "b", CHECKPOINT), "me/mine", "owner/model")
    with pytest.raises(HubError, match="names a commit"):
        plan_upload(tmp_path / "b", "me/mine@" + "0" * 40)
    with pytest.raises(CheckpointError, match="has adapter_config.json and no adapter_model.safetensors"):
        plan_upload(written(tmp_path / "c", {"adapter_config.json": b"{}"}), "me/mine", "owner/model")
    assert not server.requests
