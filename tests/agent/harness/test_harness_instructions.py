"""AGENTS.md files: outermost first, none from outside of the repository, the nearest one cut last, and nothing lost in silence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etude.agent.harness.instructions import MAX_BYTES, InstructionFile, find_instructions, fit, render_instructions


def repository_of(folder: Path, files: dict[str, str]) -> Path:
    (folder / ".git").mkdir(parents=True)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def test_instructions_go_from_the_repository_root_down_to_the_folder(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("outside")
    root = repository_of(tmp_path / "repository", {"AGENTS.md": "root\n", "src/deep/AGENTS.md": "deep\n"})
    found = find_instructions(root / "src" / "deep")
    assert [(one.path, one.text) for one in found.files] == [("AGENTS.md", "root"), ("src/deep/AGENTS.md", "deep")]
    assert render_instructions(found.files).index("root") < render_instructions(found.files).index("deep")
    assert found.problems == []


def test_a_folder_without_a_repository_has_only_its_own(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("above")
    (tmp_path / "inner").mkdir()
    assert find_instructions(tmp_path / "inner").files == []
    assert [one.text for one in find_instructions(tmp_path).files] == ["above"]
    assert render_instructions([]) == ""


def test_long_instructions_are_cut_at_a_line_and_both_sides_learn_of_it(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("a line of some length\n" * 60_000)
    found = find_instructions(tmp_path)
    assert found.files == [] and "larger than" in found.problems[0]
    (tmp_path / "AGENTS.md").write_text("a line of some length\n" * 2000)
    found = find_instructions(tmp_path)
    *lines, last = found.files[0].text.split("\n")
    assert set(lines) == {"a line of some length"} and "cut" in last
    assert MAX_BYTES - 30 < len("\n".join(lines).encode()) <= MAX_BYTES
    assert len(found.problems) == 1 and "AGENTS.md is cut" in found.problems[0]


def test_the_nearest_file_is_the_last_to_be_cut() -> None:
    root, middle, near = (InstructionFile(f"{path}AGENTS.md", path + "rule\n" * 5000) for path in ("", "a/", "a/b/"))
    found = fit([root, middle, near])
    assert found.files[2].text == near.text.strip()
    assert "[cut" in found.files[1].text and found.files[1].text.startswith("a/rule")
    assert found.files[0].text.startswith("[cut") and [line.split()[0] for line in found.problems] == [
        "AGENTS.md",
        "a/AGENTS.md",
    ]


def test_a_single_long_line_keeps_its_beginning() -> None:
    (one,) = fit([InstructionFile("AGENTS.md", "é" * MAX_BYTES)]).files
    assert one.text.startswith("é" * (MAX_BYTES // 2)) and one.text.endswith("KiB]")


@pytest.mark.parametrize("folder", ["", "pkg"])
def test_a_file_that_is_a_link_out_of_the_repository_is_refused_and_reported(tmp_path: Path, folder: str) -> None:
    (tmp_path / "private").write_text("PRIVATE KEY")
    root = repository_of(tmp_path / "repository", {"pkg/a.py": "", "docs/guide.md": "guide"})
    (root / folder / "AGENTS.md").symlink_to(tmp_path / "private")
    found = find_instructions(root / "pkg")
    assert found.files == [] and "leads out" in found.problems[0]
    (root / folder / "AGENTS.md").unlink()
    (root / folder / "AGENTS.md").symlink_to(root / "docs" / "guide.md")
    assert [one.text for one in find_instructions(root / "pkg").files] == ["guide"]


def test_a_pipe_in_place_of_the_file_is_reported_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "AGENTS.md")
    assert "not a regular file" in find_instructions(tmp_path).problems[0]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_does_not_reach_the_prompt(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "AGENTS.md").write_bytes("règle".encode(encoding))
    assert [one.text for one in find_instructions(tmp_path).files] == ["règle"]
    assert fit([InstructionFile("AGENTS.md", "\ufeffrule")]).files[0].text == "rule"
