"""AGENTS.md files: outermost first, none from above the repository, cut where they are too long."""

from __future__ import annotations

from pathlib import Path

from etude.harness.instructions import MAX_BYTES, find_instructions, rendered


def test_instructions_go_from_the_repository_root_down_to_the_folder(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    deep = repository / "src" / "deep"
    deep.mkdir(parents=True)
    (repository / ".git").mkdir()
    (tmp_path / "AGENTS.md").write_text("outside")
    (repository / "AGENTS.md").write_text("root\n")
    (deep / "AGENTS.md").write_text("deep\n")
    found = find_instructions(deep)
    assert [(one.path, one.text) for one in found] == [("AGENTS.md", "root"), ("src/deep/AGENTS.md", "deep")]
    assert rendered(found).index("root") < rendered(found).index("deep")


def test_a_folder_without_a_repository_has_only_its_own(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("above")
    (tmp_path / "inner").mkdir()
    assert find_instructions(tmp_path / "inner") == []
    assert [one.text for one in find_instructions(tmp_path)] == ["above"]
    assert rendered([]) == ""


def test_long_instructions_are_cut_at_a_line_and_say_so(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("a line of some length\n" * MAX_BYTES)
    (one,) = find_instructions(tmp_path)
    *lines, last = one.text.split("\n")
    assert set(lines) == {"a line of some length"} and "cut" in last
    assert len("\n".join(lines).encode()) <= MAX_BYTES
