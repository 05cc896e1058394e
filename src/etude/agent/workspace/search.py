"""Search of the workspace: ripgrep where the machine has it, else `scripts/search_tree.py`, whose rows are the same."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Literal

from etude.agent.workspace import scripts
from etude.agent.workspace.globs import TooManyAlternatives, plain_globs
from etude.agent.workspace.workspace import Workspace
from etude.sandbox.spec import ExecResult

Mode = Literal["content", "files", "count", "glob"]
Order = Literal["path", "mtime"]

# Rows beyond this no answer could show. ripgrep itself is read to its end or its time limit.
_MAX_OUTPUT_BYTES = 1 << 20
# Ignore files of the machine and of the person would make answers differ between a laptop and a sandbox.
_RIPGREP = ("rg", "--no-config", "--color", "never", "--hidden", "--no-require-git", "--no-ignore-global", "--no-ignore-exclude",
            "--no-ignore-dot", "--no-messages", "--crlf")  # fmt: skip


class SearchFailed(Exception):
    """No answer, in words for the model."""


@dataclass(frozen=True)
class Query:
    """What to look for. `path` is a file or folder.

    `names` are plain globs (`globs.py`) of which a file's name must fit one. `globs` are those of whole paths in the way of .gitignore
    (`!` excludes); a file that one names is found even if it is ignored itself. A query has one or the other.
    """

    mode: Mode
    pattern: str = ""
    ignore_case: bool = False
    context: int = 0
    names: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()
    path: str = "."
    order: Order = "path"

    def only(self, glob: str, root: str = "") -> Query:
        """Of the files that fit a glob as a person writes it, relative to `path`. Without a folder in it, it fits names at any depth and
        finds nothing ignored. `root`: the workspace's own path. Raises SearchFailed."""
        text = glob.strip()
        excludes = text.startswith("!")
        inside = self.path not in ("", ".") and not self.path.startswith("/")
        try:
            found = plain_globs(text.removeprefix("!"), self.path.strip("/") if inside else "", root)
        except TooManyAlternatives as error:
            raise SearchFailed(f"{glob[:80]!r} {error}; use a simpler one") from None
        if text in ("", "!") or not excludes and any(plain in ("", "*", "**", "/**") for plain in found):
            return self
        if self.path.startswith("/"):  # an absolute folder, to which no glob of the workspace is relative
            found = [f"**{plain}" if plain.startswith("/") else plain for plain in found]
        if excludes:
            return replace(self, globs=tuple(f"!{plain}" for plain in found))
        if any("/" in plain or ":" in plain for plain in found):  # ripgrep takes no colon in globs for names
            return replace(self, globs=tuple(plain if "/" in plain else f"**/{plain}" for plain in found))
        return replace(self, names=tuple(found))


@dataclass(frozen=True)
class Rows:
    """`whole`: these are all, not just those that fitted the output limit."""

    rows: list[str]
    whole: bool


class Searcher:
    """Finds out once a session whether there is a ripgrep."""

    def __init__(self, workspace: Workspace, *, ripgrep: bool | None = None) -> None:
        self._workspace = workspace
        self._ripgrep = ripgrep

    async def rows(self, query: Query, timeout_s: float) -> Rows:
        """In a fixed order. A pattern that ripgrep refuses (look-around, `\\"`) is one of Python's, and searched for as such. Raises
        SearchFailed."""
        if self._ripgrep is None:
            found = await self._workspace.run(["rg", "--version"], timeout_s=10, max_output_bytes=1 << 10)
            self._ripgrep = found.rc == 0
        done = await self._run(_ripgrep(query), timeout_s) if self._ripgrep else None
        if done is None or done.rc not in (0, 1) and not done.out:
            request = scripts.command("search_tree", json.dumps(asdict(query)))
            done = await self._run(request, timeout_s)
        text = done.out
        if done.truncated:
            text = text[: text.rindex(b"\n[... ")]
        rows = [_clean(row) for row in text.decode("utf-8", "replace").split("\n")]
        if done.rc not in (0, 1) and not text:
            said = done.err.decode(errors="replace").strip().split("\n")[-1]
            raise SearchFailed(f"bad pattern: {said or f'exit {done.rc}'}")
        return Rows([row for row in rows if row], not done.truncated)

    async def _run(self, argv: list[str], timeout_s: float) -> ExecResult:
        done = await self._workspace.run(argv, timeout_s=timeout_s, max_output_bytes=_MAX_OUTPUT_BYTES)
        if done.timed_out:
            raise SearchFailed("the search timed out; use a simpler pattern or a folder")
        return done


def _ripgrep(query: Query) -> list[str]:
    words = [*_RIPGREP, "--sortr" if query.order == "mtime" else "--sort"]
    words.append("modified" if query.order == "mtime" else "path")
    for glob in (*query.globs, "!.git"):
        words += ["--glob", glob]
    for glob in query.names:
        words += ["--type-add", f"wanted:{glob}", "--type", "wanted"]
    # "././x" is a path that ripgrep 13 can't relate to nested ignore files
    path = query.path if query.path.startswith("/") else "./" if query.path == "." else f"./{query.path}"
    if query.mode == "glob":
        return [*words, "--files", "--", path]
    modes = {
        "content": ["--no-heading", "--with-filename", "--line-number", "--context", str(query.context)],
        "files": ["--files-with-matches"],
        "count": ["--count", "--with-filename"],
    }
    case = ["--ignore-case"] if query.ignore_case else []
    return [*words, *modes[query.mode], *case, "--regexp", query.pattern, "--", path]


def _clean(row: str) -> str:
    return row.removesuffix("\r").removeprefix("./")
