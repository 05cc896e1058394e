"""The lines of a failed command's output that say why it failed, before those that only say that it did. Pure."""

from __future__ import annotations

import re

MOST_LINES, MOST_CHARS, LONGEST_LINE = 3, 600, 220
_CAUSES = re.compile(
    r"fatal error: |: No such file or directory|^E\s+\w*(Error|Exception)\b|\b\w*Error: |Cannot find (module|package)|"
    r"command not found|: not found$|No module named|npm (ERR!|error) (?!A complete log|errno)|ERROR: |unable to detect version|"
    r"Multiple top-level|requires a different Python|No matching distribution|EACCES|ENOTFOUND|ETIMEDOUT|ERR_[A-Z_]+|"
    r"error TS\d+|undefined: |cannot find package|panic: ",
)
_EMPTY = re.compile(
    r"subprocess-exited-with-error|legacy-install-failure|metadata-generation-failed|failed with exit (code|status)|ERR_TEST_FAILURE|"
    r"This error originates|ELIFECYCLE|code: 'ERR|testCodeFailure|did not run successfully"
)


def cause(text: str, end: int = 200) -> str:
    """At most MOST_LINES of such lines, in order, then the last `end` characters of the text where they say more; MOST_CHARS in all."""
    lines = [" ".join(line.split())[:LONGEST_LINE] for line in text.splitlines()]
    found = [line for line in lines if _CAUSES.search(line) and not _EMPTY.search(line)]
    chosen = list(dict.fromkeys(found))[:MOST_LINES]
    last = " ".join(text.split())[-end:]
    if not chosen:
        return " ".join(text.split())[-2 * end :]
    return "; ".join([*chosen, *([] if chosen[-1] in last or last in chosen[-1] else [f"at the end: {last}"])])[
        :MOST_CHARS
    ]
