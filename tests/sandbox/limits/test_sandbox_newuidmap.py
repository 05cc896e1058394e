"""The way of an ordinary user: newuidmap and newgidmap map the zygote of ranges, with subordinate ids that this test lends to `nobody`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import etude
from etude.sandbox import interpreter

_FIRST, _NUMBER = 1_500_000_000, 131_072
# In a mount namespace of its own: the machine's own files of subordinate ids stay as they are.
_LEND = (
    'mount --make-rprivate / && mount --bind "$1/ids" /etc/subuid && mount --bind "$1/ids" /etc/subgid && '
    'exec setpriv --reuid 65534 --regid 65534 --clear-groups "$2" -I -S -c "$3" "$1"'
)
_PROGRAM = f"""
import os, sys
sys.path.insert(0, sys.argv[1])
from etude.sandbox.inside import users
from etude.sandbox.inside import syscalls as sys_
ranges = {{"uids": [{_FIRST}, {_NUMBER}], "gids": [{_FIRST}, {_NUMBER}], "tools": ["/usr/bin/newuidmap", "/usr/bin/newgidmap"]}}
assert users.why_no_ranges(ranges) == "", users.why_no_ranges(ranges)
too_many = {{**ranges, "uids": [{_FIRST}, {_NUMBER} + 1]}}
assert "/etc/subuid" in users.why_no_ranges(too_many)
helper, uid, gid = users.Helper(ranges, "/usr"), os.getuid(), os.getgid()
sys_.unshare(sys_.CLONE_NEWUSER)
helper.map(uid, gid)
assert helper.lend({_FIRST}, {_FIRST}) == -1
reader, writer = os.pipe()
pid, _ = sys_.fork_into(sys_.CLONE_NEWUSER)
if pid == 0:
    os.read(reader, 1)
    users.become_root_inside()
    os.setgroups([5])
    os.setresgid(7, 7, 7)
    os.setresuid(33, 33, 33)
    print(os.getuid(), os.getgid(), os.getgroups(), open("/proc/self/uid_map").read().split(), flush=True)
    os._exit(0)
users.give_range(pid, {_FIRST} + 65536, {_FIRST} + 65536)
os.write(writer, b"1")
os.waitpid(pid, 0)
"""


@pytest.fixture
def lent() -> Iterator[Path]:
    """A folder that `nobody` can read: the code that runs inside, and the file of subordinate ids."""
    if os.geteuid() != 0:
        pytest.skip("only root can lend subordinate ids")
    for tool in ("/usr/bin/newuidmap", "/usr/bin/newgidmap", "unshare", "setpriv"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool}")
    folder = Path(tempfile.mkdtemp(prefix="etude-lent-"))
    source = Path(etude.__file__).parent
    for part in ("", "sandbox"):
        (folder / "etude" / part).mkdir()
        (folder / "etude" / part / "__init__.py").touch()
    shutil.copytree(source / "sandbox/inside", folder / "etude/sandbox/inside")
    (folder / "ids").write_text(f"nobody:{_FIRST}:{_NUMBER}\n")
    for found in (folder, *folder.rglob("*")):
        found.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_two_ranges_of_an_ordinary_user_are_mapped_with_groups_and_all(lent: Path) -> None:
    """Test 49 of docs/sandbox.md, without root: and one id more than was given is refused, by the name of the file that gives."""
    python = interpreter.find().path
    argv = ["unshare", "-m", "sh", "-c", _LEND, "sh", str(lent), python, _PROGRAM]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    if "unshare" in done.stderr and "not permitted" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"33 7 [5] ['0', '{_FIRST + 65536}', '65536']"
