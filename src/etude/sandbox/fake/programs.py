"""The commands that a fake sandbox knows, and a shell that runs them one after the other. A test adds its own: `{"pytest": grade}`."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping

from etude.sandbox.errors import SandboxError
from etude.sandbox.fake.command import FakeCommand, Program
from etude.sandbox.spec import ExecResult


async def _true(command: FakeCommand) -> int:
    return 0


async def _false(command: FakeCommand) -> int:
    return 1


async def _echo(command: FakeCommand) -> int:
    command.put(" ".join(command.argv[1:]).encode("utf-8", "surrogateescape") + b"\n")
    return 0


async def _cat(command: FakeCommand) -> int:
    rc = 0
    if len(command.argv) == 1:
        command.put(await command.input())
    for name in command.argv[1:]:
        try:
            command.put(command.files.read(name, 64 << 20, 0))
        except SandboxError as error:
            command.put(f"cat: {error}\n".encode(), "stderr")
            rc = 1
    return rc


async def _sleep(command: FakeCommand) -> int:
    await asyncio.sleep(float(command.argv[1]))
    return 0


BUILT_IN: Mapping[str, Program] = {"true": _true, "false": _false, "echo": _echo, "cat": _cat, "sleep": _sleep}


async def execute(command: FakeCommand, table: Mapping[str, Program]) -> int:
    """The program of the first word, with or without its folder."""
    name = command.argv[0].rpartition("/")[2]
    if name in ("sh", "bash") and command.argv[1:2] == ["-c"]:
        return await _shell(command, command.argv[2], table)
    program = table.get(name)
    if program is None:
        command.put(f"{name}: not among the commands of this fake sandbox\n".encode(), "stderr")
        return 127
    return await program(command)


async def _shell(command: FakeCommand, line: str, table: Mapping[str, Program]) -> int:
    """`a ; b && c || d > file`: sequences and one redirection each; anything else of a shell's language is refused by name."""
    words = shlex.shlex(line, posix=True, punctuation_chars=";&|<>()")
    words.whitespace_split = True
    rc, run_next, part = 0, True, []
    for word in [*words, ";"]:
        if word not in (";", "&&", "||"):
            part.append(word)
            continue
        if part and run_next:
            rc = await _simple(command, part, table)
        part = []
        run_next = word == ";" or (word == "&&") == (rc == 0)
    return rc


async def _simple(command: FakeCommand, words: list[str], table: Mapping[str, Program]) -> int:
    odd = [word for word in words if word in ("|", "&", "<", "(", ")", "<<", "|&")]
    if odd:
        command.put(f"sh: a fake shell has no {odd[0]}\n".encode(), "stderr")
        return 2
    mark = next((index for index, word in enumerate(words) if word in (">", ">>")), len(words))
    inner = FakeCommand(words[:mark], command.env, command.files, await command.input() if words == ["cat"] else b"")
    rc = await execute(inner, table)
    done = inner.with_output(ExecResult(rc, b"", b""))
    if mark < len(words):
        name = words[mark + 1]
        before = command.files.find(command.files.resolve(name)) if words[mark] == ">>" else None
        command.files.write(name, (before.data if before else b"") + done.out, None)
    else:
        command.put(done.out)
    command.put(done.err, "stderr")
    return rc
