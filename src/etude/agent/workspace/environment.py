"""What a command finds in its environment: never a key of the person's, and no editor or pager that waits for a terminal.

A command line is a model's, and what it prints goes to an endpoint, into a session and perhaps into a file of the repository. So
variables that hold keys are taken out before any command runs, with and without a sandbox.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from etude.core.redact.keys import is_secret_name

# A shorter value of a key's variable is a word like "none", which other variables may well hold.
_MIN_KEY_CHARS = 8

_REASON = "there is no terminal here, so no editor can run"
_GIT_EDITOR = f"sh -c 'echo \"{_REASON}; give the text by an option: git commit -m TEXT, or -F FILE\" >&2; exit 1' --"
_GIT_SEQUENCE_EDITOR = (
    f"sh -c 'echo \"{_REASON}; set GIT_SEQUENCE_EDITOR to a command that edits the file it gets\" >&2; exit 1' --"
)
# Programs run it in many ways, not all by a shell: the name of a command that is not there explains in each of them.
_EDITOR = "no-editor-runs-here-give-the-text-by-an-option-or-a-file"
# A command that wants to ask or to page says so and ends, instead of waiting for its time limit.
NO_TERMINAL: Mapping[str, str] = {
    "EDITOR": _EDITOR,
    "VISUAL": _EDITOR,
    "GIT_EDITOR": _GIT_EDITOR,
    "GIT_SEQUENCE_EDITOR": _GIT_SEQUENCE_EDITOR,
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS_REQUIRE": "never",
    "DEBIAN_FRONTEND": "noninteractive",
    "TERM": "dumb",
}

# As every sandbox has it. Python takes bytecode for current whose source has the same size and the same second of change, so that of two
# edits within a second the first would run; and a folder keeps what was written in it, not caches.
NO_BYTECODE: Mapping[str, str] = {"PYTHONDONTWRITEBYTECODE": "1"}


def without_keys(environ: Mapping[str, str], names: Iterable[str] = ()) -> dict[str, str]:
    """The variables that a command may have: none of `names` (those that hold a model's key), none that is called like a secret, and
    none whose value holds a key that is left out."""
    named = set(names)
    keys = {key for name in named if len(key := environ.get(name, "").strip()) >= _MIN_KEY_CHARS}
    kept = {name: value for name, value in environ.items() if name not in named and not is_secret_name(name)}
    return {name: value for name, value in kept.items() if not any(key in value for key in keys)}
