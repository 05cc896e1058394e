"""Small git repositories, the same on every machine."""

import os
import subprocess

ME = {
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
}  # fmt: skip


def git(path, *arguments, day="2024-01-01"):
    dates = {"GIT_AUTHOR_DATE": f"{day}T12:00:00Z", "GIT_COMMITTER_DATE": f"{day}T12:00:00Z"}
    environment = {**os.environ, **ME, **dates}
    return subprocess.run(
        ["git", "-C", path, *arguments], check=True, capture_output=True, env=environment
    ).stdout.decode()


def commit(path, day, **files):
    for name, text in files.items():
        (path / f"{name}.py").write_text(text)
    git(path, "add", "-A")
    git(path, "commit", "-qm", "x", day=day)
