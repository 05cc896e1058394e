"""Where ripgrep is missing: searches and lists a tree as `rg --hidden --sort path` does, with the same rows.

`search_tree.py JSON`: {mode: content | files | count | glob, pattern, ignore_case, context, names, globs, path, order: path | mtime}. Exit
status 0, 1 (nothing found) or 2 (a bad pattern, explained on stderr). What is shared: patterns that Rust's and Python's expressions read
alike or that `pythonic` translates, `.gitignore` files from the workspace down, UTF-8 files and UTF-16 files with a mark; a file with a
zero byte is skipped. Not shared: ignore files above the workspace, and rules with a slash in those above `path` (ripgrep 13 misses them).
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from collections.abc import Iterator

TYPE_CHECKING = False  # as in `typing`, without importing it
if TYPE_CHECKING:
    from typing import Any

    Rules = list[tuple[str, list[tuple[re.Pattern[str], bool, bool]]]]


def octets(text: str) -> str:
    """The bytes of a path or a glob, each as one character: git and ripgrep match bytes, so `?` is no letter beyond ASCII."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("latin-1")
    except UnicodeEncodeError:  # half a pair, which no path can hold
        return text.encode("utf-8", "replace").decode("latin-1")


def translated(glob: str) -> re.Pattern[str]:
    """A glob in the way of .gitignore, for `octets` of paths relative to the file's folder; without a slash it fits at any depth."""
    glob = octets(glob[2:] if glob.startswith("./") else glob)
    anchored = "/" in glob.rstrip("/")
    glob = glob.strip("/") if anchored else glob.rstrip("/")
    out, i, depth = "" if anchored else "(?:.*/)?", 0, 0
    while i < len(glob):
        c = glob[i]
        if glob.startswith("**/", i) and (i == 0 or glob[i - 1] == "/"):
            out, i = out + "(?:.*/)?", i + 3
            continue
        if glob.startswith("**", i) and i + 2 == len(glob) and i > 0 and glob[i - 1] == "/":
            out, i = out + ".+", i + 2
            continue
        end = glob.find("]", i + 3 if glob[i + 1 : i + 2] in ("!", "^") else i + 2)
        if c == "*":
            while glob.startswith("*", i + 1):
                i += 1
            out += "[^/]*"
        elif c == "?":
            out += "[^/]"
        elif c == "[" and end > 0:
            inner = glob[i + 1 : end].replace("\\", "\\\\")
            out, i = f"{out}[{'^' + inner[1:] if inner[0] in '!^' else inner}]", end
        elif c == "\\" and i + 1 < len(glob):
            i += 1
            out += re.escape(glob[i])
        elif c == "{" and "}" in glob[i:]:
            out, depth = out + "(?:", depth + 1
        elif c in ",}" and depth:
            out, depth = out + ("|" if c == "," else ")"), depth - (c == "}")
        else:
            out += re.escape(c)
        i += 1
    return re.compile(out, re.S)


def ignore_rules(folder: str) -> list[tuple[re.Pattern[str], bool, bool]]:
    """(pattern, negated, folders only) of a folder's .gitignore, in order."""
    try:
        path = os.path.join(folder, ".gitignore")
        if not os.path.isfile(path):  # a pipe would be waited for
            return []
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().split("\n")
    except OSError:
        return []
    rules = []
    for line in lines:
        line = line.rstrip("\r")
        line = line if line.endswith("\\ ") else line.rstrip(" ")
        if not line or line.startswith("#"):
            continue
        negated = line.startswith("!")
        line = line[1:] if negated else line
        try:
            rules.append((translated(line), negated, line.endswith("/")))
        except re.error:
            continue  # a glob that is none ignores nothing
    return rules


def is_ignored(path: str, is_folder: bool, rules: Rules) -> bool:
    """The deepest file that says something decides, in it the last line that fits."""
    for base, lines in reversed(rules):
        inner = octets(path[len(base) :])
        for pattern, negated, folders_only in reversed(lines):
            if (is_folder or not folders_only) and pattern.fullmatch(inner):
                return not negated
    return False


def wanted(path: str, globs: list[tuple[re.Pattern[str], bool, bool]], is_folder: bool) -> bool | None:
    """What globs of the call say, which outrank .gitignore: the last that fits; without a fit files are unwanted if any includes."""
    octet_path = octets(path)
    for pattern, excludes, folders_only in reversed(globs):
        if (is_folder or not folders_only) and pattern.fullmatch(octet_path):
            return not excludes
    return False if not is_folder and any(not excludes for _, excludes, _ in globs) else None


def walk(folder: str, globs: list[tuple[re.Pattern[str], bool, bool]], rules: Rules) -> Iterator[str]:
    """Files below a folder ("" or "a/b/"), names in byte order."""
    rules = [*rules, (folder, ignore_rules(folder or "."))]
    try:
        entries = sorted(os.scandir(folder or "."), key=lambda entry: os.fsencode(entry.name))
    except OSError:
        return
    for entry in entries:
        path, is_folder = folder + entry.name, entry.is_dir(follow_symlinks=False)
        if entry.name == ".git":
            continue
        said = wanted(path, globs, is_folder)
        if said is False or said is None and is_ignored(path, is_folder, rules):
            continue
        if is_folder:
            yield from walk(path + "/", globs, rules)
        elif entry.is_file(follow_symlinks=False):
            yield path


def files_of(request: dict[str, Any]) -> Iterator[str]:
    """The files that a request is about."""
    globs = [
        (translated(glob.removeprefix("!")), glob.startswith("!"), glob.endswith("/")) for glob in request["globs"]
    ]
    names = [translated(glob) for glob in request["names"]]
    path = os.path.normpath(request["path"])
    if os.path.isfile(path):
        yield path
        return
    if not os.path.isdir(path):
        sys.exit(f"{path}: No such file or directory (os error 2)")
    folder = "" if path == "." else path + "/"
    parts = folder.split("/")[:-1]
    above = ["".join(f"{part}/" for part in parts[:i]) for i in range(len(parts))]
    for file in walk(folder, globs, [(base, ignore_rules(base or ".")) for base in above]):
        if not names or any(name.fullmatch(octets(os.path.basename(file))) for name in names):
            yield file


def lines_of(path: str) -> list[str] | None:
    """Without their ends, and without the file's mark. None for a file that can't be read or is binary."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = data.decode("utf-16", "replace")
    elif b"\0" in data:
        return None
    else:
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


POSIX = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "blank": " \\t", "space": "\\t\\n\\v\\f\\r ",
    "xdigit": "0-9a-fA-F", "word": "a-zA-Z0-9_", "punct": "!-/:-@\\[-`{-~", "cntrl": "\\x00-\\x1f\\x7f", "graph": "!-~", "print": " -~",
    "ascii": "\\x00-\\x7f",
}  # fmt: skip
RUST = re.compile(
    r"\[\[:\^(?P<none>\w+):\]\]|\\(?:z|x\{(?P<hex>[0-9a-fA-F]+)\}|.)|\[:(?P<posix>\w+):\]|\(\?<(?=[A-Za-z_])", re.S
)

FIRST = re.compile(
    r"(?<!\\)((?:\\\\)*\[\^?\])-"
)  # a bracket that a class begins with: no range of ripgrep's begins there


def has_set_operations(pattern: str) -> bool:
    """Whether a class of characters holds another one or an operator on classes (`&&`, `--`, `~~`), which Python reads as characters.
    A class that does not end as ripgrep reads it is one of Python's alone."""
    at, depth, found, begun = 0, 0, False, False  # `begun`: a range may go on from the character before
    while at < len(pattern):
        c = pattern[at]
        twice, at = pattern.startswith(c, at + 1), at + 1
        if c == "[":
            depth, found, begun = depth + 1, found or depth > 0, False
            at += pattern.startswith("^", at)
            hyphens = len(pattern[at:]) - len(pattern[at:].lstrip("-"))
            found |= hyphens > 1
            at += hyphens or pattern.startswith("]", at)
        elif depth and c == "]":
            depth, begun = depth - 1, False
            if not depth and found:
                return True
        elif depth and c in "&-~" and twice:
            found = True
        elif c == "-" and begun and not pattern.startswith("]", at):
            at += 2 if pattern.startswith("\\", at) else 1
            begun = False
        else:
            at += c == "\\"
            begun = depth > 0
    return False


def pythonic(pattern: str) -> str:
    """A pattern of ripgrep's default expressions as one of Python's, as far as they are spelled differently. Raises ValueError for what
    Python would read as something else."""

    def spelled(match: re.Match[str]) -> str:
        text = match[0]
        if match["none"] in POSIX:
            return f"[^{POSIX[match['none']]}]"
        if match["posix"]:
            return POSIX.get(match["posix"], text)
        if match["hex"]:
            return re.escape(chr(int(match["hex"], 16)))
        return {"\\z": "\\Z", "(?<": "(?P<"}.get(text, text)

    plain = RUST.sub(spelled, pattern)
    if has_set_operations(plain):
        raise ValueError(
            "a class of characters within another one, and && -- ~~ in it, need ripgrep; list the characters"
        )
    return FIRST.sub(r"\1\-", plain)


def content_rows(path: str, lines: list[str], hits: list[int], context: int, first: bool) -> Iterator[str]:
    shown = sorted({i for hit in hits for i in range(max(0, hit - context), min(len(lines), hit + context + 1))})
    marked, last = set(hits), -2
    for i in shown:
        if context and i != last + 1 and not (first and last == -2):
            yield "--"
        sign = ":" if i in marked else "-"
        yield f"{path}{sign}{i + 1}{sign}{lines[i]}"
        last = i


def search(request: dict[str, Any], pattern: re.Pattern[str]) -> Iterator[str]:
    first = True
    for path in files_of(request):
        lines = lines_of(path)
        hits = [i for i, line in enumerate(lines or ()) if pattern.search(line)]
        if not hits or lines is None:
            continue
        if request["mode"] == "content":
            yield from content_rows(path, lines, hits, request["context"], first)
        else:
            yield path if request["mode"] == "files" else f"{path}:{len(hits)}"
        first = False


def rows_of(request: dict[str, Any]) -> Iterator[str]:
    if request["mode"] != "glob":
        flags = re.IGNORECASE if request["ignore_case"] else 0
        return search(request, re.compile(pythonic(request["pattern"]), flags))
    files = files_of(request)
    return files if request["order"] == "path" else iter(sorted(files, key=_newest_first))


def _newest_first(path: str) -> tuple[int, str]:
    return -os.stat(path).st_mtime_ns, path


def main() -> int:
    try:
        rows = rows_of(json.loads(sys.argv[1]))
    except (re.error, RecursionError, OverflowError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    write = functools.partial(os.write, 1)
    found, block = False, bytearray()
    for row in rows:
        found = True
        block += row.encode("utf-8", "surrogateescape") + b"\n"
        if len(block) > 1 << 16:
            write(bytes(block))
            block.clear()
    write(bytes(block))
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
