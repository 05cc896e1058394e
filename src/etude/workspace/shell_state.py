"""The shell's memory between two commands of a session: folder and exported variables. Each command is a process of its own, so
that none can wedge the session; what it leaves of folder and environment is what the next one starts from.

A command that is killed, or replaces its shell (`exec`), leaves the memory as it was.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from etude.sandbox.spec import ExecResult
from etude.workspace.workspace import Workspace

# $1 the command line, $2 the folder, $3 names of variables that the session has unset.
_ENTER = """: "${OUTPUTS:=${TMPDIR:-/tmp}/etude-outputs}"
export OUTPUTS
[ -d "$OUTPUTS" ] || mkdir -p "$OUTPUTS"
for etude_name in $3; do unset "$etude_name"; done
etude_before=${OLDPWD-}
if [ -n "$2" ] && ! cd -- "$2" 2>/dev/null; then echo "the folder $2 is gone; this runs in $PWD"; fi
[ -z "$etude_before" ] || OLDPWD=$etude_before
unset etude_before etude_name
"""
# stdout carries both of the command's streams, in the order in which they were written; stderr carries what the shell remembers.
_FOREGROUND = f"""exec 9>&2 2>&1 </dev/null
{_ENTER}trap '{{ printf "%s\\0" "$PWD"; env -0; }} >&9' EXIT
eval "$1"
"""
_BACKGROUND = f"""{_ENTER}eval "$1"
"""
# An environment is a few kB; a larger one than this is forgotten, as after a killed command.
MAX_MEMORY_BYTES = 1 << 17
# Set anew by each shell, or our own.
_NOT_KEPT = ("_", "SHLVL", "PWD", "ETUDE_RUN", "ETUDE_JOB")


@dataclass(frozen=True)
class Ran:
    """A command's end. `output`: both streams; `folder`: where the shell is now, relative to the workspace; `moved`: by this one."""

    result: ExecResult
    output: bytes
    folder: str
    moved: bool


class ShellState:
    """One session's shell."""

    def __init__(self) -> None:
        self._shell: str | None = None
        self._root: str | None = None
        self._folder = ""
        self._given: set[str] = set()  # variables that a fresh shell has
        self._variables: dict[str, str] = {}
        self._known = False  # whether `_variables` was ever read

    async def run(self, workspace: Workspace, command: str, *, timeout_s: float, max_output_bytes: int) -> Ran:
        """Run it where the last one ended."""
        argv = await self._argv(workspace, _FOREGROUND, command)
        result = await workspace.run(argv, timeout_s=timeout_s, max_output_bytes=max_output_bytes, env=self._variables)
        before = self._folder
        self._remember(result.err)
        return Ran(result, result.out, self.folder, self._folder != before)

    async def background(self, workspace: Workspace, command: str) -> tuple[list[str], dict[str, str]]:
        """The process, and its variables, that runs a command line from here and leaves no memory."""
        return await self._argv(workspace, _BACKGROUND, command), self._variables

    @property
    def folder(self) -> str:
        """Relative to the workspace, "." for itself; absolute if outside."""
        root = (self._root or "").rstrip("/")
        if self._folder in ("", root):
            return "."
        return self._folder.removeprefix(root + "/") if root else self._folder

    async def _argv(self, workspace: Workspace, wrapper: str, command: str) -> list[str]:
        if self._shell is None:
            await self._begin(workspace)
        unset = sorted(self._given - set(self._variables)) if self._known else []
        return [self._shell or "/bin/sh", "-c", wrapper, "shell", command, self._folder, " ".join(unset)]

    async def _begin(self, workspace: Workspace) -> None:
        """Which shell there is, where the workspace lies as the shell sees it, and what it begins with."""
        for shell in ("/bin/bash", "/bin/sh"):
            asked = [shell, "-c", "pwd -P; env -0"]
            found = await workspace.run(asked, timeout_s=10, max_output_bytes=MAX_MEMORY_BYTES)
            if found.rc == 0:
                root, _, variables = found.out.partition(b"\n")
                self._shell, self._root = shell, posixpath.normpath(root.decode(errors="replace"))
                self._given = set(_parsed(variables))
                return

    def _remember(self, memory: bytes) -> None:
        folder, zero, variables = memory.partition(b"\0")
        if not zero:
            return  # killed, or replaced by another program
        try:
            self._folder = "" if folder.decode() == self._root else folder.decode()
        except UnicodeDecodeError:
            return  # a folder that no message can name
        self._variables, self._known = _parsed(variables), True


def _parsed(variables: bytes) -> dict[str, str]:
    """What `env -0` printed; values that are no text can't be handed on."""
    found: dict[str, str] = {}
    for part in variables.split(b"\0"):
        name, equals, value = part.partition(b"=")
        try:
            if equals and name.decode() not in _NOT_KEPT:
                found[name.decode()] = value.decode()
        except UnicodeDecodeError:
            continue
    return found
