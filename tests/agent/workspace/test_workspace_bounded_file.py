"""What the host reads of somebody else's folder: nothing outside of it, no more than allowed, no pipe."""

import os
from pathlib import Path

import pytest

from etude.agent.workspace.bounded_file import FileRefused, decode_text, read_inside


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("private")
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "root-2").mkdir()
    (tmp_path / "root-2" / "file").write_text("private")
    return tmp_path / "root"


def test_a_plain_file_and_a_link_inside_of_the_folder_are_read(root: Path):
    (root / "sub" / "real").write_bytes(b"text")
    (root / "link").symlink_to("sub/real")
    assert read_inside(root, "sub/real", 100) == read_inside(root, "link", 100) == b"text"
    assert read_inside(root, "missing", 100) is None


@pytest.mark.parametrize(
    "target", ["../secret", "{tmp}/secret", "sub/../../secret", "../root-2/file", "/dev/zero", "/proc/self/environ"]
)
def test_a_link_out_of_the_folder_is_refused(root: Path, target: str):
    (root / "file").symlink_to(target.format(tmp=root.parent))
    with pytest.raises(FileRefused, match="link that leads out"):
        read_inside(root, "file", 100)


def test_a_chain_of_links_and_a_linked_folder_that_lead_out_are_refused(root: Path):
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("../secret")
    (root / "folder").symlink_to("..")
    for name in ("a", "folder/secret"):
        with pytest.raises(FileRefused, match="leads out"):
            read_inside(root, name, 100)


def test_what_is_no_regular_file_is_refused_and_not_waited_for(root: Path):
    os.mkfifo(root / "pipe")
    for name in ("pipe", "sub"):
        with pytest.raises(FileRefused, match="not a regular file"):
            read_inside(root, name, 100)
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to("nothing")
    for name in ("loop", "dangling"):
        with pytest.raises(FileRefused, match="can't be read"):
            read_inside(root, name, 100)


def test_a_file_over_the_limit_is_refused_and_one_at_it_is_read(root: Path):
    (root / "file").write_bytes(b"x" * 101)
    assert read_inside(root, "file", 101) == b"x" * 101
    with pytest.raises(FileRefused, match="larger"):
        read_inside(root, "file", 100)


def test_the_folder_itself_may_be_a_link(root: Path):
    (root / "file").write_text("text")
    (root.parent / "alias").symlink_to("root")
    assert read_inside(root.parent / "alias", "file", 100) == b"text"


@pytest.mark.parametrize(
    "data", [b"caf\xc3\xa9", b"\xef\xbb\xbfcaf\xc3\xa9", "caf\xe9".encode("utf-16"), b"\xfe\xff\0c\0a\0f\0\xe9"]
)
def test_a_byte_order_mark_is_dropped(data: bytes):
    assert decode_text(data) == "café"
