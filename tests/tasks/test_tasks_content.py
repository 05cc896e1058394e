"""Bytes, modes and link targets of a project's files survive everything that a task goes through."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.git_links.git import GitError
from etude.rollout.verdicts import key_of
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.spec import SandboxSpec
from etude.tasks.content import (
    EXECUTABLE,
    LINK,
    MODES,
    PLAIN,
    FileBytes,
    FileText,
    file_bytes,
    file_text,
    files_below,
    from_json,
    is_text,
    like,
    mode_of,
    read_file,
    to_json,
    write_file,
)
from etude.tasks.environment.environment import Environment
from etude.tasks.environment.workspace import open_workspace, read_workspace, special_of
from etude.tasks.graders import documentation, mutants
from etude.tasks.graders.edits import apply_edits, encode_files
from etude.tasks.harbor import read_task, write_task
from etude.tasks.patch import PatchRefused, apply_patch
from etude.tasks.solved import reference_files
from etude.tasks.store.folder import record_of, task_of
from etude.tasks.store.trees import Trees, tree_digest
from etude.tasks.task import Task
from etude.tasks.tree import tree

DATA = (
    st.binary(max_size=40)
    | st.text(max_size=20).map(str.encode)
    | st.sampled_from([b"\xe9", b"\0", b"\xed\xa0\x80", b"a\r\n"])
)
CONTENTS = st.builds(file_text, DATA, st.sampled_from(MODES))


@given(DATA, st.sampled_from(MODES))
def test_every_file_comes_back_from_text_json_and_pickle(data: bytes, mode: str) -> None:
    text = file_text(data, mode)  # type: ignore[arg-type]
    assert bytes(text.encode()) == data and mode_of(text.encode()) == mode
    again = from_json(json.loads(json.dumps(to_json(text))))
    assert again == text and type(again) is type(text)
    assert pickle.loads(pickle.dumps(text)) == text and pickle.loads(pickle.dumps(text.encode())) == text.encode()
    assert file_text(text.encode()) == text


@given(CONTENTS, CONTENTS)
def test_equality_is_of_content_and_mode_whichever_side_asks(read_workspace: str, right: str) -> None:
    same = bytes(read_workspace.encode()) == bytes(right.encode()) and mode_of(read_workspace) == mode_of(right)
    assert (
        (read_workspace == right) is same
        and (right == read_workspace) is same
        and (read_workspace != right) is not same
    )
    assert (read_workspace.encode() == right.encode()) is same
    assert not same or hash(read_workspace) == hash(right)


def test_a_plain_text_is_a_str_as_ever() -> None:
    assert type(file_text(b"x = 1\n")) is str and type(file_bytes(b"x")) is bytes and to_json("é") == "é"
    assert not is_text(file_text(b"\0")) and not is_text(file_text(b"\xe9")) and not is_text(FileText("a", LINK))
    assert is_text(FileText("#!/bin/sh\n", EXECUTABLE))
    assert like(FileText("a", EXECUTABLE), "b") == FileText("b", EXECUTABLE) and like("a", "b") == "b"


def test_only_files_that_a_sandbox_can_not_be_created_with_are_written_afterwards() -> None:
    files = {"pkg/deep/a.py": "1", "b.py": "2", "run.sh": FileText("3", EXECUTABLE), "lnk": FileText("pkg", LINK)}
    task = Task("t", "", "l", "", files, (), "commands")
    as_is = {path: text.encode() for path, text in files.items()}
    assert special_of(task, as_is).keys() == {"run.sh", "lnk"}
    changed = {"pkg/deep": b"a file", "b.py/inside": b"4", "run.sh": b"plain", "lnk/x": b"5", "new/c.py": b"6"}
    assert special_of(task, changed).keys() == {"pkg/deep", "b.py/inside", "run.sh", "lnk/x"}


def test_an_edited_latin_1_text_keeps_its_bytes() -> None:
    before = file_text(b"# caf\xe9\nx = 1\n")
    after = apply_edits({"a.py": before}, [{"path": "a.py", "at": before.index("1"), "old": "1", "new": "2"}])
    assert encode_files(after) == {"a.py": b"# caf\xe9\nx = 2\n"}
    assert mode_of(like(FileText("a", EXECUTABLE), str.__getitem__(file_text(b"\xe9"), slice(None)))) == EXECUTABLE


@pytest.mark.parametrize("grade", [documentation.groups_of, mutants.objection])
def test_executable_files_and_links_that_were_left_as_they_were_are_no_change(grade: Callable[..., object]) -> None:
    files = {
        "manage.py": FileText("x = 1\n", EXECUTABLE),
        "lnk.py": FileText("manage.py", LINK),
        "m.py": "def f(): ...\n",
    }
    hidden = {"path": "test_m.py", "module": "m.py", "form": "examples", "sources": []}
    task = Task("t", "tests", "l", "", files, (), "mutants", hidden=hidden)
    left_as_is = {path: text.encode() for path, text in files.items()} | {"test_m.py": b">>> 1\n1\n"}
    assert grade(task, left_as_is) in ("", [ANY])
    changed = {"manage.py": b"x = 2\n", "lnk.py": b"manage.py"}  # the link is a file with its text
    for path, data in changed.items():
        try:
            assert f"{path} was changed" in str(grade(task, left_as_is | {path: data}))
        except documentation.Poor as error:
            assert f"{path} was changed" in str(error)


@pytest.mark.parametrize(
    "value", [5, None, {"mode": "100600", "text": "a"}, {"mode": PLAIN}, {"mode": PLAIN, "base64": "!"}]
)
def test_what_is_no_content_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        from_json(value)


ODD = {
    "bin.dat": FileText(b"\x00\xff\x01".decode("utf-8", "surrogateescape")),
    "latin.py": FileText("# caf\udce9\n"),
    "run.sh": FileText("#!/bin/sh\necho 2\n", EXECUTABLE),
    "link": FileText("pkg/a.py", LINK),
    "pkg/a.py": "X = 1\n",
}


def _git(folder: Path, *words: str) -> str:
    env = {
        **os.environ,
        **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    return subprocess.run(
        ["git", *words], cwd=folder, env=env, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    _git(root, "init", "-q", "-b", "main")
    for path, text in ODD.items():
        write_file(root, path, text.encode())
    _git(root, "add", "-A")
    _git(root, "commit", "-q", "-m", "odd")
    return root


def test_a_tree_of_git_holds_every_kind_of_file(repository: Path) -> None:
    found = tree(repository, "HEAD")
    assert dict(found.files) == ODD and found.left_out == ()


def test_a_clone_that_lacks_a_file_is_one_line_with_the_remedy(repository: Path) -> None:
    blob = _git(repository, "rev-parse", "HEAD:pkg/a.py")
    place = repository / ".git" / "objects" / blob[:2] / blob[2:]
    place.chmod(0o600)
    place.unlink()
    with pytest.raises(GitError, match="lacks pkg/a.py .*partial clone.*fetch --refetch") as refused:
        tree(repository, "HEAD")
    assert "\n" not in str(refused.value)


def test_files_of_this_machine_are_read_and_written_with_mode_and_target(tmp_path: Path) -> None:
    for path, text in ODD.items():
        write_file(tmp_path, path, text.encode())
    assert {path: file_text(read_file(tmp_path / path)) for path in files_below(tmp_path)} == ODD
    write_file(tmp_path, "link", b"plain now")  # in the link's place, not through it
    assert not (tmp_path / "link").is_symlink() and (tmp_path / "pkg/a.py").read_text() == "X = 1\n"


@pytest.mark.parametrize("path", ["../x", "/x", "out/x", ""])
def test_no_path_leads_out_of_its_folder(tmp_path: Path, path: str) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "out").symlink_to(tmp_path)
    with pytest.raises(ValueError):
        write_file(tmp_path / "inside", path, b"")
    assert not (tmp_path / "x").exists()


CHANGES = {
    "binary data": {"bin.dat": FileText(b"\x00\x01\x02".decode("utf-8", "surrogateescape"))},
    "a new binary file": {"new.png": FileText(b"\x89PNG\x00".decode("utf-8", "surrogateescape"))},
    "Latin-1": {"latin.py": FileText("# caf\udce8\n")},
    "a mode": {"run.sh": "#!/bin/sh\necho 2\n"},
    "a mode the other way": {"pkg/a.py": FileText("X = 1\n", EXECUTABLE)},
    "a link": {"link": FileText("run.sh", LINK)},
    "a link for a file": {"pkg/a.py": FileText("../run.sh", LINK)},
    "a move": {"pkg/a.py": None, "pkg/b.py": "X = 1\n"},
    "a move of a binary file": {"bin.dat": None, "pkg/moved.dat": ODD["bin.dat"]},
    "a name that git quotes": {"é ü.txt": "x\n"},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_patch_changes_every_kind_of_file_as_git_does(repository: Path, name: str) -> None:
    for path, text in CHANGES[name].items():
        (repository / path).unlink(missing_ok=True)
        if text is not None:
            write_file(repository, path, text.encode())
    _git(repository, "add", "-A")
    words = ["git", "diff", "--cached", "--binary", "--full-index", "-M"]
    patch = subprocess.run(words, cwd=repository, capture_output=True, check=True).stdout.decode(
        "utf-8", "surrogateescape"
    )
    expected = {path: text for path, text in {**ODD, **CHANGES[name]}.items() if text is not None}
    assert apply_patch(ODD, patch) == expected


def test_a_patch_through_a_link_out_of_the_tree_is_refused(tmp_path: Path) -> None:
    patch = "diff --git a/out/x b/out/x\nnew file mode 100644\n--- /dev/null\n+++ b/out/x\n@@ -0,0 +1 @@\n+x\n"
    with pytest.raises(PatchRefused):
        apply_patch({"out": FileText(str(tmp_path), LINK)}, patch.replace("a/out/x b/out/x", "a/out b/out") + patch)
    assert not (tmp_path / "x").exists()


def _task(**changes: object) -> Task:
    solution: dict[str, str] = {"run.sh": FileText("#!/bin/sh\necho 3\n", EXECUTABLE), "bin.dat": FileText("\0\0")}
    hidden = {"files": {"tests/x.bin": FileText("\udcff\0"), "tests/t.py": "x\n"}}
    task = Task(
        "t", "c", "l", "do it", dict(ODD), ("true",), "commands", hidden, solution, metadata={"editable": ["run.sh"]}
    )
    return replace(task, **changes)  # type: ignore[arg-type]


def test_a_task_comes_back_from_a_folder_and_from_a_harbor_directory(tmp_path: Path) -> None:
    task = _task()
    record = json.loads(json.dumps(record_of(task, {"link": ODD["link"]})))
    assert task_of(record, {"link": ODD["link"]}) == task
    again = read_task(write_task(task, tmp_path / "harbor"))
    assert again == task and mode_of(again.hidden["files"]["tests/x.bin"]) == PLAIN
    assert os.access(tmp_path / "harbor/environment/files/run.sh", os.X_OK)
    assert os.readlink(tmp_path / "harbor/environment/files/link") == "pkg/a.py"


def test_a_project_s_tree_is_kept_with_all_of_it_and_digests_of_texts_are_as_before(tmp_path: Path) -> None:
    trees = Trees(tmp_path)
    trees.put("p-1", ODD, {})
    assert Trees(tmp_path).tree("p-1") == ODD
    assert tree_digest({"a": "b"}) == hashlib.sha256(b'{"a": "b"}').hexdigest()
    assert tree_digest(ODD) != tree_digest({**ODD, "run.sh": str(ODD["run.sh"])})


def test_trees_that_differ_in_a_mode_alone_share_no_verdict() -> None:
    assert key_of("t", {"a": b"x"}) != key_of("t", {"a": FileBytes(b"x", EXECUTABLE)})


async def test_a_sandbox_has_every_kind_of_file_and_gives_it_back(pool: SandboxPool) -> None:
    environment = {"environment": Environment("p", "1").to_record()}
    sandbox = await open_workspace(_task(metadata=environment), pool, SandboxSpec())
    shown = await sandbox.run("./run.sh; readlink link; cat link; od -An -tx1 bin.dat latin.py")
    assert shown.out.decode().split()[:5] == ["2", "pkg/a.py", "X", "=", "1"] and b"00 ff 01" in shown.out
    assert await read_workspace(sandbox, _task(metadata=environment)) == {
        path: text.encode() for path, text in ODD.items()
    }
    await sandbox.run(
        "chmod -x run.sh; chmod +x latin.py; rm link; ln -s run.sh other; rm pkg/a.py; ln -s ../run.sh pkg/a.py"
    )
    found = await read_workspace(sandbox, _task(metadata=environment))
    assert {path: mode_of(data) for path, data in found.items()} == {
        "bin.dat": PLAIN, "latin.py": EXECUTABLE, "run.sh": PLAIN, "other": LINK, "pkg/a.py": LINK,
    }  # fmt: skip
    assert found["pkg/a.py"] == FileBytes(b"../run.sh", LINK)
    await sandbox.kill()


async def test_files_of_another_kind_take_the_place_of_those_that_are_there(pool: SandboxPool) -> None:
    environment = {"environment": Environment("p", "1").to_record()}
    task = _task(metadata=environment)
    files = {**reference_files(task), "link": b"plain\n", "pkg/a.py": FileBytes(b"../run.sh", LINK)}
    sandbox = await open_workspace(task, pool, SandboxSpec(), files=files)
    assert (await sandbox.run("cat link; ./pkg/a.py")).out == b"plain\n3\n"
    await sandbox.kill()
