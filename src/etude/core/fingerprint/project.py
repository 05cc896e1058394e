"""One name for the same project, wherever it comes from."""

from __future__ import annotations


def project_name(name: str) -> str:
    """Lower case, and `python3-foo_bar`, `node-foo-bar`, `@scope/foo-bar`, `_foo_bar` reduced to what they have in common."""
    name = name.lower().rpartition("/")[2].replace("_", "-").replace(".", "-")
    for prefix in ("python3-", "python-", "node-"):
        name = name.removeprefix(prefix)
    return name.lstrip("-") or name
