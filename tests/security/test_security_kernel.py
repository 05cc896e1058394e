"""Doors of the kernel, tried from inside: system calls, /proc/sys, devices."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from etude.sandbox.protocol import Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")

Python = Callable[[str], Awaitable[str]]

SYSCALL = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    result = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    return "ok" if result >= 0 else os.strerror(ctypes.get_errno())
"""
X86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="system call numbers of x86_64")


@pytest.mark.parametrize(
    "path",
    ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/kernel/hostname", "/sys/kernel/uevent_helper", "/usr/bin/x",
     "/etc/passwd", "/dev/sda", "/x", "/proc/1/oom_score_adj"],
)  # fmt: skip
async def test_nothing_of_the_host_can_be_written(box: Sandbox, path: str) -> None:
    """Test 32 of docs/sandbox.md."""
    host = Path("/proc/sys/kernel/core_pattern").read_text()
    assert (await box.run(f"echo '|/bin/evil' > {path}")).rc != 0
    assert Path("/proc/sys/kernel/core_pattern").read_text() == host


async def test_no_setting_of_the_kernel_can_be_opened_for_writing(python: Python) -> None:
    """Test 32 of docs/sandbox.md: every file below /proc/sys, and /sys is not there."""
    code = """
import os
opened = tried = 0
for folder, _, names in os.walk("/proc/sys"):
    for name in names:
        tried += 1
        try:
            os.close(os.open(os.path.join(folder, name), os.O_WRONLY)); opened += 1
        except OSError:
            pass
print(opened, tried > 100, os.path.isdir("/sys") and os.listdir("/sys") or "none")
"""
    assert await python(code) == "0 True none"


@X86
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("ptrace", "101, 0, 0, 0, 0"), ("process_vm_readv", "310, 1, 0, 0, 0, 0, 0"), ("keyctl", "250, 0, -3, 0"),
        ("add_key", "248, b'user', b'x', b'y', 1, -3"), ("request_key", "249, b'user', b'x', 0, 0"), ("bpf", "321, 0, 0, 0"),
        ("io_uring_setup", "425, 8, 0"), ("io_uring_enter", "426, 0, 0, 0, 0, 0"), ("io_uring_register", "427, 0, 0, 0, 0"),
        ("userfaultfd", "323, 0"), ("perf_event_open", "298, 0, 0, -1, -1, 0"), ("kexec_load", "246, 0, 0, 0, 0"),
        ("finit_module", "313, 0, b'', 0"), ("mount", "165, b'none', b'/tmp', b'tmpfs', 0, 0"), ("umount2", "166, b'/work', 2"),
        ("pivot_root", "155, b'.', b'.'"), ("chroot", "161, b'/tmp'"), ("open_tree", "428, -100, b'/', 1"),
        ("move_mount", "429, -100, b'/', -100, b'/tmp', 0"), ("fsopen", "430, b'tmpfs', 0"),
        ("mount_setattr", "442, -100, b'/', 0, 0, 0"), ("open_by_handle_at", "304, -100, 0, 0"), ("setns", "308, 0, 0"),
        ("reboot", "169, 0, 0, 0, 0"), ("unshare user", "272, 0x10000000"), ("unshare all", "272, 0x7e020000"),
        ("clone user", "56, 0x10000011, 0, 0, 0, 0"), ("pidfd_getfd", "438, 0, 0, 0"), ("memfd_create", "319, b'x', 0"),
        ("sethostname", "170, b'x', 1"), ("swapon", "167, b'/x', 0"), ("syslog", "103, 3, 0, 0"),
        ("mknod device", "133, b'/tmp/disk', 0o060666, 2048"), ("mknod console", "133, b'/tmp/mem', 0o020666, 257"),
    ],
)  # fmt: skip
async def test_dangerous_system_calls_are_refused(python: Python, name: str, call: str) -> None:
    """Test 33 of docs/sandbox.md."""
    assert await python(f"{SYSCALL}\nprint(call({call}))") == "Operation not permitted"


@X86
async def test_clone3_is_absent_and_the_x32_door_closed(python: Python) -> None:
    code = f"{SYSCALL}\nprint(call(435, 0, 0), '|', call(0x40000000 + 39))"
    assert await python(code) == " | ".join(["Function not implemented"] * 2)


async def test_no_device_can_be_made_but_pipes_can(python: Python) -> None:
    """A device 0:0 needs no privilege elsewhere, and would hide a file of another layer in a later snapshot."""
    code = """
import os
for mode, device in ((0o020600, 0), (0o060600, 2048), (0o020600, 257)):
    try:
        os.mknod("/tmp/device", mode, device); print("made", oct(mode))
    except OSError as error:
        print(error.errno, end=" ")
os.mkfifo("/tmp/pipe"); os.unlink("/tmp/pipe")
"""
    assert await python(code) == "1 1 1"
