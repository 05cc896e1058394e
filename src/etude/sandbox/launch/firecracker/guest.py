"""A program of its own, run by path: starts a small guest in 64-bit mode under KVM and says whether they ran.

That /dev/kvm exists says little: it may be closed, or belong to a KVM that runs no 64-bit guest, which then spins for ever. A caller that starts
this kills it at a limit. Ends with 0, or with 1 and a line that says what failed.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
import sys

_API_VERSION, _CREATE_VM, _MMAP_SIZE, _CREATE_VCPU, _RUN = 0xAE00, 0xAE01, 0xAE04, 0xAE41, 0xAE80
_SET_TSS, _SET_MEMORY, _SET_REGS, _GET_SREGS, _SET_SREGS = 0xAE47, 0x4020AE46, 0x4090AE82, 0x8138AE83, 0x4138AE84
_EXIT_IO = 2
_BYTES, _TABLES, _CODE, _PORT, _ANSWER = 1 << 21, 0x1000, 0x4000, 0x10, 42
# mov rax, 1 << 40; shr rax, 40; add al, 41: they exist in 64-bit mode alone. mov ecx, 50 million; dec ecx; jnz: quick unless each
# instruction is emulated. mov rdx, cr3; mov cr3, rdx: what a kernel does all the time. out 0x10, al; hlt.
_PROGRAM = bytes.fromhex("48b80000000000010000 48c1e828 0429 b980f0fa02 ffc9 75fc 0f20da 0f22da e610 f4")
_SEGMENTS = ("cs", "ds", "es", "fs", "gs", "ss")
_SEGMENT = "<QIHBBBBBBBBBB"  # base, limit, selector, type, present, dpl, db, s, l, g, avl, unusable, padding


def main() -> str:
    """What failed, or nothing."""
    step = "open /dev/kvm"
    try:
        kvm = os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC)
        step = "KVM_GET_API_VERSION"
        if (version := fcntl.ioctl(kvm, _API_VERSION, 0)) != 12:
            return f"the API of this KVM is {version}, not 12"
        step = "KVM_CREATE_VM"
        vm = fcntl.ioctl(kvm, _CREATE_VM, 0)
        step = "KVM_SET_USER_MEMORY_REGION"
        memory = mmap.mmap(-1, _BYTES)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        fcntl.ioctl(vm, _SET_TSS, 0x7FFBD000)
        fcntl.ioctl(vm, _SET_MEMORY, struct.pack("<IIQQQ", 0, 0, 0, _BYTES, address))
        step = "KVM_CREATE_VCPU"
        cpu = fcntl.ioctl(vm, _CREATE_VCPU, 0)
        shared = mmap.mmap(cpu, fcntl.ioctl(kvm, _MMAP_SIZE, 0))
        step = "KVM_SET_SREGS"
        fcntl.ioctl(cpu, _SET_SREGS, _long_mode(fcntl.ioctl(cpu, _GET_SREGS, bytes(312))))
        registers = [0] * 18
        registers[16], registers[17] = _CODE, 2  # rip, rflags
        fcntl.ioctl(cpu, _SET_REGS, struct.pack("<18Q", *registers))
        for place, entry in ((0, 0x2003), (0x1000, 0x3003), (0x2000, 0x83)):  # one page of 2 MiB, by three tables
            struct.pack_into("<Q", memory, _TABLES + place, entry)
        memory[_CODE : _CODE + len(_PROGRAM)] = _PROGRAM
        step = "KVM_RUN"
        fcntl.ioctl(cpu, _RUN, 0)
    except OSError as error:
        return f"{step}: {error.strerror}"
    (reason,) = struct.unpack_from("<I", shared, 8)
    direction, size, port, _, offset = struct.unpack_from("<BBHIQ", shared, 32)
    if (reason, direction, size, port) != (_EXIT_IO, 1, 1, _PORT) or shared[offset] != _ANSWER:
        return f"a small 64-bit guest ended with KVM's exit {reason} instead of its answer"
    return ""


def _long_mode(before: bytes) -> bytes:
    found = bytearray(before)
    for number, name in enumerate(_SEGMENTS):
        code = name == "cs"
        segment = (
            0,
            0xFFFFFFFF,
            8 if code else 16,
            11 if code else 3,
            1,
            0,
            0 if code else 1,
            1,
            int(code),
            1,
            0,
            0,
            0,
        )
        struct.pack_into(_SEGMENT, found, 24 * number, *segment)
    at = 24 * 8 + 16 * 2  # after six segments, tr and ldt, and two tables
    cr0, cr4, efer = 0x80000033, 0x20, 0x500
    struct.pack_into("<5Q", found, at, cr0, 0, _TABLES, cr4, 0)
    struct.pack_into("<Q", found, at + 40, efer)
    return bytes(found)


if __name__ == "__main__":
    problem = main()
    print(problem)
    sys.exit(1 if problem else 0)
