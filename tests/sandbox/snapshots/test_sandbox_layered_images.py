"""Sandboxes whose root is an image, and the verbs that put images and snapshots in and out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from etude.sandbox.errors import SandboxError, Unsupported, UserError
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.snapshots import images
from etude.sandbox.snapshots.cache import open_store
from etude.sandbox.spec import FileChange, SandboxSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system of a shell, cat and what they load."""
    folder = tmp_path_factory.mktemp("root")
    for name in ("/bin/sh", "/bin/cat", "/bin/ls", "/bin/rm"):
        program = shutil.which(name)
        if program is None or shutil.which("ldd") is None:
            pytest.skip(f"{name} or ldd is not here to make a root file system of")
        shown = subprocess.run(["ldd", program], capture_output=True, text=True).stdout.split()
        for file in (program, *(word for word in shown if word.startswith("/"))):
            target = folder / file.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(file), target)
    (folder / "etc").mkdir(exist_ok=True)
    (folder / "etc/os").write_text("tiny\n")
    return folder


async def test_an_image_is_the_root_and_is_forked_with_the_rest(pool: LocalPool, layers: str, root: Path) -> None:
    with open_store(layers) as store:
        images.add(store, root, "tiny:1").release()
    box = await pool.create(SandboxSpec(image="tiny:1", warm_python=False, files={"a": b"1"}))
    shown = await box.run("cat /etc/os a; ls /; echo 2 > a; rm /etc/os")
    assert shown.rc == 0 and shown.out.startswith(b"tiny\n1") and b"home" not in shown.out and b"opt" not in shown.out
    assert await box.diff() == [FileChange("etc/os", "removed"), FileChange("work/a", "changed")]
    (child,) = await box.fork(1)
    assert not isinstance(child, SandboxError)
    shown = await child.run("cat a; ls /etc")
    assert shown.out.startswith(b"2\n") and b"os" not in shown.out.split()
    await child.kill()
    await box.kill()


async def test_an_image_that_is_none_is_refused(pool: LocalPool, layers: str, root: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no image")
    with open_store(layers) as store:
        with pytest.raises(UserError, match="there is no such"):
            images.add(store, tmp_path / "absent", "x")
        with pytest.raises(UserError):
            images.add(store, tmp_path / "text", "x")
        with pytest.raises(UserError, match="neither a Dockerfile nor"):
            images.build(store, tmp_path, "x")
    box = await pool.create(SandboxSpec(files={"a": b"1"}))
    await box.snapshot("files-only")
    with pytest.raises(UserError, match="is a snapshot of files"):
        await pool.create(SandboxSpec(image="files-only", warm_python=False))
    with pytest.raises(Unsupported, match="warm_python"):
        await pool.create(SandboxSpec(image="files-only"))
    await box.kill()


async def test_a_dockerfile_and_a_devcontainer_become_images(layers: str, root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "root")
    (tmp_path / "Dockerfile").write_text("FROM scratch\nENV SAID=hello\nWORKDIR /srv\nCOPY root /\n")
    (tmp_path / "devcontainer.json").write_text('{\n  // the same\n  "build": {"dockerfile": "Dockerfile"}\n}')
    with open_store(layers) as store:
        try:
            with images.build(store, tmp_path, "built:1") as held:
                assert held.snapshot.is_image and held.snapshot.env["SAID"] == "hello"
                assert held.snapshot.workdir == "/srv"
        except (Unsupported, UserError) as error:
            pytest.skip(f"no engine builds here: {str(error)[-300:]}")
    assert images.find_build(tmp_path / "devcontainer.json") == images.ImageBuild(
        tmp_path / "Dockerfile", tmp_path / "."
    )


def _etude(folder: Path, *words: str) -> tuple[int, dict]:
    argv = [sys.executable, "-c", "from etude.cli.main import main; main()", "sandbox", *words, "--json"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.nightly
async def test_the_verbs_add_list_export_import_verify_and_remove(root: Path, tmp_path: Path) -> None:
    store, other = ("--store", str(tmp_path / "one")), ("--store", str(tmp_path / "two"))
    code, made = _etude(tmp_path, "image", "add", "tiny:1", str(root), *store)
    assert code == 0 and len(made["layers"]) == 1
    assert _etude(tmp_path, "image", "list", *store)[1]["images"][0]["names"] == ["tiny:1"]
    assert _etude(tmp_path, "layers", "export", "tiny:1", "it.tar", *store)[1]["digest"] == made["digest"]
    code, again = _etude(tmp_path, "layers", "import", "it.tar", "--name", "same", *other)
    assert code == 0 and again["digest"] == made["digest"]
    (victim,) = (tmp_path / "two/layers").glob("*/tree/etc/os")
    code, found = _etude(tmp_path, "layers", "list", "--verify", *other)
    assert (code, found["layers"], found["problems"]) == (0, 1, {}) and found["snapshots"]
    victim.write_text("evil\n")
    code, found = _etude(tmp_path, "layers", "list", "--verify", *other)
    assert code == 1 and list(found["problems"]) == made["layers"]
    assert _etude(tmp_path, "image", "remove", "absent", *store)[1]["error"]["type"] == "UserError"
    assert _etude(tmp_path, "image", "remove", "tiny:1", *store)[0] == 0
    assert _etude(tmp_path, "layers", "gc", "--older-than-s", "0", *store)[1]["layers"] in (0, 1)
    assert _etude(tmp_path, "layers", "list", *store)[1]["snapshots"] == []
