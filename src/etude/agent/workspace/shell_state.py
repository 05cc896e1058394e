"""The shell's memory between two commands of a session: folder and exported variables. Each command is a process of its own, so
that none can wedge the session; the next command starts from the folder and environment that it leaves.

The memory goes through a file of the outputs folder, not through a descriptor: a command may take any number (`exec 9>lock`) and
would then write the memory into its own file. It is written when the shell exits, before an EXIT trap of the command's own. Every
command gets the folder's path from the host, so a command that sets or unsets OUTPUTS or TMPDIR moves nothing.

A command that is killed, or replaces its shell (`exec`), leaves the memory as it was.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from etude.agent.workspace.environment import NO_TERMINAL
from etude.agent.workspace.operations import OUTPUTS, OUTPUTS_FOLDER
from etude.agent.workspace.workspace import LONGEST_ARGUMENT_BYTES, Workspace
from etude.sandbox.inside.leftover import VARIABLE
from etude.sandbox.spec import ExecResult

MEMORY_FILE = ".shell"
_END = "etude_end"

# $1 the command line, "" for one that is on stdin; $2 the folder; $3 names of variables that the session has unset; $4 the folder
# of outputs.
_ENTER = """[ -n "$1" ] || set -- "$(cat; echo .)" "$2" "$3" "$4" .
export OUTPUTS="$4"
[ -d "$OUTPUTS" ] || mkdir -p "$OUTPUTS"
for etude_name in $3; do unset "$etude_name"; done
etude_before=${OLDPWD-}
if [ -n "$2" ] && ! cd -- "$2" 2>/dev/null; then echo "the folder $2 is gone; this runs in $PWD"; fi
[ -z "$etude_before" ] || OLDPWD=$etude_before
unset etude_before etude_name
"""
# In the shell of the command alone, not in its subshells. `>|` and `set +e`: whatever options the command has set.
_REMEMBER = f"""etude_memory=$4/{MEMORY_FILE}
if [ -x /usr/bin/env ]; then etude_env=/usr/bin/env; else etude_env=env; fi
etude_remember() {{
    etude_status=$?
    set +e
    etude_pid=${{BASHPID-}}
    [ -n "$etude_pid" ] || read -r etude_pid etude_rest </proc/self/stat
    if [ "$etude_pid" = "$$" ]; then
        {{ command printf '%s\\0' "$PWD"; "$etude_env" -0; command printf '{_END}\\0'; }} >|"$etude_memory"
    fi
    return "$etude_status"
}}
etude_trap() {{
    [ "${{1-}}" != -- ] || shift
    case "$#,${{1-}}" in
        0,* | *,-[lp]*) command trap "$@"; return ;;
        1,*) etude_code=- ;;
        *) etude_code=$1; shift ;;
    esac
    for etude_signal; do
        case $etude_signal,$etude_code in
            0,- | [Ee][Xx][Ii][Tt],- | SIGEXIT,-) command trap '{{ etude_remember; }} 2>/dev/null' EXIT ;;
            0,* | [Ee][Xx][Ii][Tt],* | SIGEXIT,*) command trap "{{ etude_remember; }} 2>/dev/null
$etude_code" EXIT ;;
            *) command trap -- "$etude_code" "$etude_signal" ;;
        esac
    done
}}
if [ -n "${{BASH_VERSION-}}" ]; then eval 'trap() {{ etude_trap "$@"; }}'; else alias trap=etude_trap; fi
command trap '{{ etude_remember; }} 2>/dev/null' EXIT
"""
# The command sees no arguments of ours. bash's messages name lines of this text and the command's together.
_RUN = """[ -z "${5-}" ] || set -- "${1%.}"
eval "set --
$1"
"""
# stdout carries both of the command's streams, in the order in which they were written.
_FOREGROUND = f"""exec 2>&1
{_ENTER}exec </dev/null
{_REMEMBER}{_RUN}{{ etude_remember; }} 2>/dev/null
"""
_BACKGROUND = f"""{_ENTER}exec </dev/null
{_RUN}"""
# An environment is a few kB; a larger one than this is forgotten, as after a killed command.
MAX_MEMORY_BYTES = 1 << 17
# Every shell sets these, or this program does.
_NOT_KEPT = ("_", "SHLVL", "PWD", "OUTPUTS", "ETUDE_RUN", "ETUDE_JOB", "ETUDE_SESSION", VARIABLE)
# Run by a fresh shell after the host has made the memory file: where the workspace and the folder of outputs are, as a command names
# them, and the environment. An image may set OUTPUTS and TMPDIR to anything, so the folder is the one that holds the file.
_BEGIN = f"""pwd -P
for etude_folder in "${{OUTPUTS-}}" "${{TMPDIR:-/tmp}}/etude-outputs" {OUTPUTS_FOLDER} "${{HOME-}}/etude-outputs"; do
    [ -n "$etude_folder" ] && [ -f "$etude_folder/{MEMORY_FILE}" ] && break
    etude_folder=
done
printf '%s\\0' "${{etude_folder:-${{OUTPUTS:-${{TMPDIR:-/tmp}}/etude-outputs}}}}"
env -0"""


@dataclass(frozen=True)
class ShellResult:
    """A command's end. `output`: both streams; `folder`: where the shell is now, relative to the workspace; `moved`: by this one;
    `left`: the file with what a process that it left running writes from now on, "" if it left none."""

    result: ExecResult
    output: bytes
    folder: str
    moved: bool
    left: str = ""


@dataclass(frozen=True)
class Launch:
    """A process to start: its words, its variables, the command line on stdin where it is too long for a word, and the folder of
    outputs as commands name it."""

    argv: list[str]
    env: dict[str, str]
    stdin: bytes
    outputs: str


class ShellState:
    """One session's shell."""

    def __init__(self) -> None:
        self._shell: str | None = None
        self._root: str | None = None
        self._outputs = OUTPUTS_FOLDER
        self._folder = ""
        self._given: set[str] = set()  # variables that a fresh shell has
        self._variables: dict[str, str] = {}
        self._known = False  # whether `_variables` was ever read
        self._runs = 0

    async def run(self, workspace: Workspace, command: str, *, timeout_s: float, max_output_bytes: int) -> ShellResult:
        """Run it where the last one ended."""
        launch = await self._launch(workspace, _FOREGROUND, command)
        self._runs += 1
        name = f"background-{self._runs}.txt"
        env = {**launch.env, VARIABLE: f"{OUTPUTS_FOLDER}/{name}"}
        result = await workspace.run(
            launch.argv, timeout_s=timeout_s, max_output_bytes=max_output_bytes, env=env, stdin=launch.stdin
        )
        before = self._folder
        self._remember(await workspace.output(MEMORY_FILE, 0, MAX_MEMORY_BYTES))
        left = f"{OUTPUTS}/{name}" if await workspace.output(name, 0, 1) else ""
        return ShellResult(result, result.out, self.folder, self._folder != before, left)

    async def background(self, workspace: Workspace, command: str) -> Launch:
        """The process that runs a command line from here and leaves no memory."""
        return await self._launch(workspace, _BACKGROUND, command)

    @property
    def folder(self) -> str:
        """Relative to the workspace, "." for itself; absolute if outside."""
        root = (self._root or "").rstrip("/")
        if self._folder in ("", root):
            return "."
        return self._folder.removeprefix(root + "/") if root else self._folder

    async def _launch(self, workspace: Workspace, wrapper: str, command: str) -> Launch:
        if self._shell is None:
            await self._begin(workspace)
        shell = self._shell or "/bin/sh"
        unset = sorted(self._given - set(self._variables)) if self._known else []
        line = command.encode()
        is_long = len(line) > LONGEST_ARGUMENT_BYTES
        words = ["" if is_long else command, self._folder, " ".join(unset), self._outputs]
        argv = [shell, "-c", wrapper, posixpath.basename(shell), *words]
        return Launch(argv, {**NO_TERMINAL, **self._variables}, line if is_long else b"", self._outputs)

    async def _begin(self, workspace: Workspace) -> None:
        """Which shell there is, where the workspace and its outputs lie as the shell sees them, and what it begins with."""
        await workspace.keep_output(MEMORY_FILE, b"")
        for shell in ("/bin/bash", "/bin/sh"):
            asked = [shell, "-c", _BEGIN]
            found = await workspace.run(asked, timeout_s=10, max_output_bytes=MAX_MEMORY_BYTES, env=dict(NO_TERMINAL))
            if found.rc == 0:
                root, _, rest = found.out.partition(b"\n")
                outputs, _, variables = rest.partition(b"\0")
                self._shell, self._root = shell, posixpath.normpath(root.decode(errors="replace"))
                self._outputs = outputs.decode(errors="replace") or OUTPUTS_FOLDER
                self._given = set(_parsed(variables))
                return

    def _remember(self, memory: bytes) -> None:
        folder, _, variables = memory.partition(b"\0")
        if not variables.endswith(f"{_END}\0".encode()):
            return  # killed, replaced by another program, or far too large
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
            if equals and name.decode() not in _NOT_KEPT and not name.startswith(b"etude_"):
                found[name.decode()] = value.decode()
        except UnicodeDecodeError:
            continue
    return found
