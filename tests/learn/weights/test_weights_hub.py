"""Checkpoints of a model hub: found, downloaded, resumed, checked, and refused in one line."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import HubServer, serve, sha256
from huggingface_hub import constants

from etude.learn.weights import hub, hub_download
from etude.learn.weights.hub_fetch import copy_checkpoint
from etude.learn.weights.hub_name import HubError, HubName

NAME = HubName("owner/model")
RANDOM = random.Random(0)
SHARDS = {f"model-0000{n}-of-00002.safetensors": RANDOM.randbytes(150_000) for n in (1, 2)}
INDEX = json.dumps({"weight_map": {f"w{n}": name for n, name in enumerate(SHARDS)}}).encode()
SMALL = {"config.json": b'{"model_type": "qwen3"}', "tokenizer.json": b"{}", "LICENSE": b"free", "README.md": b"# card"}
FILES = {**SMALL, **SHARDS, "model.safetensors.index.json": INDEX}
OTHERS = {"pytorch_model.bin": b"p" * 99, "model.gguf": b"g", "consolidated.safetensors": b"c", "onnx/model.onnx": b"o"}


class Observed:
    """What a download reports."""

    def __init__(self) -> None:
        self.started: list[tuple[int, int]] = []
        self.bytes = 0

    def on_start(self, files: int, size: int) -> None:
        self.started.append((files, size))

    def on_bytes(self, count: int) -> None:
        self.bytes += count


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    monkeypatch.setattr(hub_download, "PAUSE_S", 0.0)
    with serve(tmp_path / "cache", monkeypatch) as found:
        found.add("owner/model", FILES | OTHERS)
        yield found


def fetch(name: HubName = NAME, commit: str = "") -> Path:
    return hub.fetch(hub.resolve(name, commit), Observed())


def held(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def blobs(server: HubServer) -> list[str]:
    return sorted(path.name for path in Path(constants.HF_HUB_CACHE).glob("models--owner--model/blobs/*"))


def test_a_checkpoint_is_its_config_tokenizer_card_licence_and_the_safetensors_of_its_index(server: HubServer) -> None:
    seen = Observed()
    folder = hub.fetch(hub.resolve(NAME), seen)
    assert held(folder) == FILES and folder.name == server.repositories["owner/model"].branches["main"]
    assert seen.bytes == sum(map(len, FILES.values())) == sum(size for _, size in seen.started)


def test_the_library_and_others_find_what_was_downloaded(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import snapshot_download

    folder = fetch()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    found = snapshot_download("owner/model", cache_dir=constants.HF_HUB_CACHE, allow_patterns=list(FILES))
    assert Path(found) == folder


def test_a_commit_that_is_in_the_cache_needs_no_hub(server: HubServer) -> None:
    folder = fetch()
    server.requests.clear()
    assert fetch(commit=folder.name) == folder and fetch(HubName("owner/model", folder.name)) == folder
    assert not server.requests


def test_companions_come_without_weights(server: HubServer) -> None:
    found = hub.resolve(NAME)
    folder = hub.fetch_companions(found, Observed())
    assert set(held(folder)) == {*SMALL, "model.safetensors.index.json"}
    assert [(file.name, file.size) for file in found.missing(found.weights)] == [(n, 150_000) for n in SHARDS]
    assert not [name for name in server.downloads() if name.endswith((".safetensors", ".bin", ".gguf"))]


def test_a_branch_that_moves_gives_the_new_commit_and_a_pinned_commit_the_old_one(server: HubServer) -> None:
    old = fetch()
    new = server.repositories["owner/model"].commit(FILES | {"config.json": b'{"model_type": "qwen2"}'})
    assert fetch().name == new and fetch(commit=old.name) == old
    assert held(old)["config.json"] == FILES["config.json"]


def test_a_revision_may_be_a_tag_or_a_branch_with_a_slash(server: HubServer) -> None:
    sha = server.repositories["owner/model"].commit(FILES, "refs/pr/1")
    assert fetch(HubName("owner/model", "refs/pr/1")).name == sha


@pytest.mark.parametrize("cut", [1, 100_000])
def test_a_download_that_breaks_goes_on_at_its_last_byte(server: HubServer, cut: int) -> None:
    name = next(iter(SHARDS))
    server.cuts[name] = [cut, 7]
    assert held(fetch()) == FILES
    ranges = [
        h["range"] for _, path, h in server.requests if path.endswith(name) and "/content/" in path and "range" in h
    ]
    assert ranges == [f"bytes={cut}-", f"bytes={cut + 7}-"]


def test_a_download_that_was_given_up_is_resumed_by_the_next_one_and_leaves_no_half_file(server: HubServer) -> None:
    name, content = next(iter(SHARDS.items()))
    server.cuts[name] = [60_000, 0, 0, 0, 0, 0]
    with pytest.raises(HubError, match="can't be reached .*what has arrived is kept"):
        fetch()
    assert sha256(content) not in blobs(server) and f"{sha256(content)}.etude.incomplete" in blobs(server)
    server.requests.clear()
    seen = Observed()
    assert held(hub.fetch(hub.resolve(NAME), seen)) == FILES
    assert "bytes=60000-" in [h.get("range") for _, path, h in server.requests if path.endswith(name)]
    assert not [blob for blob in blobs(server) if "incomplete" in blob]


def test_a_hub_that_ignores_ranges_sends_the_file_again(server: HubServer) -> None:
    server.ignores_range = True
    server.cuts[next(iter(SHARDS))] = [50_000]
    seen = Observed()
    assert held(hub.fetch(hub.resolve(NAME), seen)) == FILES and seen.bytes == sum(map(len, FILES.values()))


@pytest.mark.parametrize("name", [next(iter(SHARDS)), "tokenizer.json"])
def test_a_file_with_another_digest_is_refused_and_removed(server: HubServer, name: str) -> None:
    server.replaced[name] = bytes(reversed(FILES[name]))
    with pytest.raises(HubError, match=rf"{name} arrived with .* it was removed"):
        fetch()
    assert not list(Path(constants.HF_HUB_CACHE).rglob(name))
    server.replaced.clear()
    assert held(fetch()) == FILES


def test_the_part_of_another_file_does_not_survive_the_check(server: HubServer) -> None:
    content = next(iter(SHARDS.values()))
    part = Path(constants.HF_HUB_CACHE, "models--owner--model", "blobs", f"{sha256(content)}.etude.incomplete")
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 10)
    with pytest.raises(HubError, match="digest"):
        fetch()
    assert held(fetch()) == FILES


def test_a_disk_that_is_too_small_is_found_before_anything_is_written(
    server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = hub.resolve(NAME)
    hub.fetch_companions(found, Observed())
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(1, 1, hub.SPARE_BYTES + 299_999))
    server.requests.clear()
    with pytest.raises(HubError, match="300,000 bytes are to be written below .* free space, or set HF_HUB_CACHE"):
        hub.fetch(found, Observed())
    assert not server.requests


def test_offline_takes_what_the_cache_holds(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fetch()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    server.requests.clear()
    assert fetch() == folder and not server.requests


def test_offline_takes_what_another_program_left_there(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fetch()
    for path in Path(constants.HF_HUB_CACHE).glob("models--owner--model/trees/*"):
        path.unlink()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch() == folder


def test_offline_without_a_cache_names_what_to_run(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        HubError, match="HF_HUB_OFFLINE is set and the cache has no owner/model: run `etude model fetch owner/model`"
    ):
        fetch()


def test_offline_with_half_a_cache_names_the_file_and_the_commit(
    server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = hub.resolve(NAME)
    hub.fetch_companions(found, Observed())
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        HubError, match=rf"lacks {next(iter(SHARDS))} of .*etude model fetch owner/model@{found.commit}`"
    ):
        fetch()


def one_line(error: BaseException, *parts: str) -> None:
    assert "\n" not in str(error) and all(part in str(error) for part in parts), str(error)


def test_an_unknown_repository_is_named_with_the_remedy(server: HubServer) -> None:
    with pytest.raises(HubError) as caught:
        fetch(HubName("owner/modle"))
    one_line(caught.value, "no folder owner/modle here and no repository of this name", server.url, "HF_TOKEN")


def test_an_unknown_revision_is_named(server: HubServer) -> None:
    with pytest.raises(HubError) as caught:
        fetch(HubName("owner/model", "v9"))
    one_line(caught.value, "owner/model has no revision 'v9'")


def test_a_gated_repository_asks_for_a_token_and_opens_with_it(
    server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add("owner/gated", FILES, token="hf_secretsecret", gated=True)
    with pytest.raises(HubError) as caught:
        fetch(HubName("owner/gated"))
    one_line(caught.value, "owner/gated is gated: accept its terms at", "HF_TOKEN")
    monkeypatch.setenv("HF_TOKEN", "hf_wrongwrong")
    with pytest.raises(HubError) as caught:
        fetch(HubName("owner/gated"))
    assert "hf_wrong" not in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", "hf_secretsecret")
    folder = fetch(HubName("owner/gated"))
    assert held(folder) == FILES
    assert not [p for p in Path(constants.HF_HUB_CACHE).rglob("*") if p.is_file() and b"hf_secret" in p.read_bytes()]


def test_the_token_is_not_sent_to_the_host_that_holds_the_content(
    server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add("owner/private", FILES, token="hf_secretsecret")
    monkeypatch.setenv("HF_TOKEN", "hf_secretsecret")
    fetch(HubName("owner/private"))
    sent = [headers for _, path, headers in server.requests if path.startswith("/content/")]
    assert sent and not [headers for headers in sent if "authorization" in headers]


@pytest.mark.parametrize(
    ("status", "parts"),
    [
        (403, ("refuses access", "HF_TOKEN")),
        (429, ("limits requests",)),
        (503, ("answers HTTP 503", "HF_HUB_OFFLINE=1")),
    ],
)
def test_a_hub_that_refuses_is_one_line(server: HubServer, status: int, parts: tuple[str, ...]) -> None:
    server.status = status
    with pytest.raises(HubError) as caught:
        fetch()
    one_line(caught.value, "owner/model", *parts)


def test_a_hub_out_of_reach_is_one_line(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HubError) as caught:
        fetch()
    one_line(caught.value, "http://127.0.0.1:9 can't be reached (ConnectError) for owner/model", "HF_ENDPOINT")


def test_a_hub_that_does_not_answer_is_one_line(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.1)
    server.delay_s = 0.3
    with pytest.raises(HubError) as caught:
        fetch()
    one_line(caught.value, "does not answer in time (ReadTimeout)")


@pytest.mark.parametrize(
    ("files", "parts"),
    [
        (SMALL | {"pytorch_model.bin": b"p"}, ("pytorch_model.bin is a pickle", "not loaded")),
        (SMALL | {"model-Q4.gguf": b"g"}, ("neither model.safetensors nor model.safetensors.index.json, only model-Q4.gguf",)),
        (SMALL, ("has no weights",)),
        ({"model.safetensors": b"w"}, ("has no config.json",)),
        (FILES | {"model.safetensors.index.json": b'{"weight_map": {"w": "model-9.safetensors"}}'}, ("lacks model-9.safetensors",)),
    ],
)  # fmt: skip
def test_a_repository_that_is_no_checkpoint_is_refused_by_name(
    server: HubServer, files: dict[str, bytes], parts: tuple[str, ...]
) -> None:
    server.add("owner/odd", files)
    with pytest.raises(HubError) as caught:
        fetch(HubName("owner/odd"))
    one_line(caught.value, *parts)
    assert not [name for name in server.downloads() if not name.endswith((".json", ".md", "LICENSE"))]


def test_an_adapter_is_its_config_and_tensors_and_offline_is_taken_from_the_cache(
    server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"a" * 999, "README.md": b"# card"}
    server.add("owner/lora", adapter | {"optimizer.pt": b"p", "checkpoint-9/adapter_model.safetensors": b"b"})
    name = HubName("owner/lora")
    folder = fetch(name)
    assert held(folder) == adapter
    for path in Path(constants.HF_HUB_CACHE).glob("models--owner--lora/trees/*"):
        path.unlink()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch(name) == folder


def test_an_adapter_next_to_whole_weights_stays_on_the_hub(server: HubServer) -> None:
    server.add("owner/both", FILES | {"adapter_config.json": b"{}", "adapter_model.safetensors": b"a"})
    assert held(fetch(HubName("owner/both"))) == FILES | {"adapter_config.json": b"{}"}


def test_files_whose_names_lead_elsewhere_are_not_taken(server: HubServer) -> None:
    server.add("owner/sly", FILES | {"../../evil.json": b"x", ".hidden.json": b"x", "a/b.json": b"x"})
    assert held(fetch(HubName("owner/sly"))) == FILES


def test_a_copy_appears_whole_or_not_at_all(server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, out = hub.resolve(NAME), tmp_path / "below" / "out"
    hub.fetch(found, Observed())

    def broken(source: Path, target: Path) -> None:
        Path(target).write_bytes(b"half")
        raise OSError(28, "No space left on device", str(target))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", broken)
        with pytest.raises(HubError, match="No space left"):
            copy_checkpoint(found, out)
    assert not list(out.parent.iterdir())
    copy_checkpoint(found, out)
    assert held(out) == FILES and not any(path.is_symlink() for path in out.iterdir())


def test_a_copy_never_goes_into_a_folder_that_holds_something(server: HubServer, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    with pytest.raises(HubError, match="is no empty folder; nothing was changed"):
        copy_checkpoint(hub.resolve(NAME), tmp_path / "full")
    assert os.listdir(tmp_path / "full") == ["mine"]


def test_a_cache_that_can_not_be_written_is_one_line(server: HubServer, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(HubError) as caught:
        fetch()
    one_line(caught.value, "the hub's cache", "HF_HUB_CACHE")
