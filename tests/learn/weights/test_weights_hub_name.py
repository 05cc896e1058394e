"""Which texts are names on a model hub, and which are paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.learn.weights.hub_name import BadHubName, HubName, hub_name, parse_hub_name


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Qwen/Qwen3-4B", HubName("Qwen/Qwen3-4B")),
        ("Qwen/Qwen3-4B@v1.0", HubName("Qwen/Qwen3-4B", "v1.0")),
        ("a/b@refs/pr/1", HubName("a/b", "refs/pr/1")),
        ("hub:a/b", HubName("a/b")),
        ("hub:runs/b", HubName("runs/b")),
        *((text, None) for text in ("checkpoints/gone", "runs/x", "model", "a/b/c", "./a/b", "../a", "/a/b", "~/a", "a/", "")),
        ("http://127.0.0.1:8000/v1", None),
    ],
)  # fmt: skip
def test_a_name_has_an_owner_and_is_no_path(
    text: str, found: HubName | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert hub_name(text) == found


def test_a_folder_wins_over_a_name_unless_the_prefix_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner").mkdir()
    assert hub_name("owner/model") is None and hub_name("hub:owner/model") == HubName("owner/model")
    assert hub_name("other/model", (tmp_path / "owner",)) == HubName("other/model")
    (tmp_path / "root" / "other").mkdir(parents=True)
    assert hub_name("other/model", (Path("."), tmp_path / "root")) is None


@pytest.mark.parametrize(
    "text",
    ["a b/c", "a/b c", "-a/b", "a/b-", "a--b/c", "a/b..c", "a/b.git", "a/b@", "a/b@x..y", "a/b@-x", "ä/b", "a/b\n", f"a/{'b' * 97}", "hub:b"],
)  # fmt: skip
def test_odd_names_are_refused_in_one_line(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadHubName) as caught:
        hub_name(text)
    assert "\n" not in str(caught.value) and "/" in str(caught.value)


def test_the_revision_comes_from_the_name_or_the_option() -> None:
    assert parse_hub_name("a/b", "v1") == HubName("a/b", "v1") == parse_hub_name("a/b@v1", "v1")
    with pytest.raises(BadHubName, match="names the revision 'v2', and --revision is 'v1': give one"):
        parse_hub_name("a/b@v2", "v1")
    assert HubName("a/b", "0" * 40).commit == "0" * 40 and HubName("a/b", "v1").commit == ""
