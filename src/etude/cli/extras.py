"""Packages that only some verbs use: a verb that lacks one names the extra of `pip install 'etude[...]'` that brings it."""

from __future__ import annotations

from importlib.util import find_spec

# Package to extra (pyproject.toml).
EXTRAS = {
    "torch": "train",
    "safetensors": "train",
    "gguf": "train",
    "ray": "rl",
    "boto3": "s3",
    "botocore": "s3",
}


class MissingPackage(Exception):
    """A verb needs a package that is not installed."""


def install_command(package: str) -> str:
    """The command that installs a package of EXTRAS."""
    return f"pip install 'etude[{EXTRAS[package]}]'"


def missing_package(package: str) -> str:
    """The message for a package of EXTRAS that is not installed."""
    return f"this command needs {package}, which is not installed; run: {install_command(package)}"


def require_packages(*packages: str) -> None:
    """Raises MissingPackage for the first of these packages of EXTRAS that is not installed. Nothing is imported."""
    for package in packages:
        if find_spec(package) is None:
            raise MissingPackage(missing_package(package))
