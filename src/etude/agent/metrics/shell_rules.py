"""What a command line is for, as far as its first words tell: reading, searching, listing, editing, running tests."""

from __future__ import annotations

import re

_FOR = {
    **dict.fromkeys(("cat", "head", "tail", "less", "more", "nl", "bat"), "read"),
    **dict.fromkeys(("grep", "egrep", "fgrep", "rg", "ag", "ack"), "search"),
    **dict.fromkeys(("ls", "find", "fd", "tree", "dir"), "list"),
    **dict.fromkeys(("curl", "wget"), "fetch"),
}
# What may stand behind the first command of a pipe without making it a job of its own.
_FILTERS = frozenset((*_FOR, "wc", "sort", "uniq", "cut", "sed"))
_CHANGES_PLACE = re.compile(r"^(?:cd\s+[^;&|]+&&\s*|[A-Z_][A-Z0-9_]*=\S*\s+)+")
_SED_EDITS = re.compile(r"^(?:sed|perl)\b[^|;&]*\s-(?:\w*i|-in-place)")
_INTO_FILE = re.compile(r"^(?:echo|printf|cat)\b[^|;&]*>{1,2}\s*(?!/dev/|&)[\w./~-]")
_TESTS = re.compile(
    r"\b(?:pytest|py\.test|tox|nox|unittest|nose2|jest|vitest|mocha|rspec|phpunit|ctest|go test|cargo (?:test|nextest)|"
    r"(?:npm|yarn|pnpm|bun)(?: run)? test|mvn [\w ]{0,80}test|gradlew? [\w ]{0,80}test|make [\w ]{0,80}(?:test|check)|dotnet test)\b"
)


def tool_instead(line: str) -> str:
    """The kind of tool (see facts.KINDS) that does what this command line does; an empty string if none does."""
    bare = _CHANGES_PLACE.sub("", line.strip())
    if _SED_EDITS.search(bare):
        return "edit"
    if _INTO_FILE.search(bare):
        return "write"
    if re.search(r"&&|;|\|\||\n|`|\$\(", bare):
        return ""  # a job of several steps is a shell's purpose
    words = [part.split(None, 1)[0] for part in bare.split("|") if part.strip()]
    if not words or any(word not in _FILTERS for word in words[1:]):
        return ""
    if words[0] == "sed" and " -n" in bare:
        return "read"
    return _FOR.get(words[0], "")


def runs_tests(line: str) -> bool:
    """Whether a command line runs a test suite."""
    return _TESTS.search(line) is not None


def hides_status(line: str) -> bool:
    """Whether something follows the last test command that gives the line another status (`&&` keeps a red one)."""
    last = max((match.end() for match in _TESTS.finditer(line)), default=0)
    return re.search(r"[|;\n]|(?<!&)&(?![&>0-9])", line[last:].strip().replace(">&", "")) is not None
