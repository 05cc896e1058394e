"""What a project's own Dockerfile or devcontainer.json says it needs: read, never run. Pure.

Its packages of pip and npm and its variables are used by the builder; what comes from a distribution's packages is there or not,
as the machine has it, and is reported where it is not.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

FILES = ("Dockerfile", "Containerfile", ".devcontainer/Dockerfile", "docker/Dockerfile")
DEVCONTAINERS = (".devcontainer/devcontainer.json", ".devcontainer.json")
HOOKS = ("onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand")
_INSTRUCTION = re.compile(r"^\s*([A-Za-z]+)\s+(.*)$", re.DOTALL)
_COMMENTS = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])')
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9][\w.-]*(\[[\w,.-]+\])?((==|>=|<=|~=|!=|<|>)[\w.*]+(,(==|>=|<=|~=|!=|<|>)[\w.*]+)*)?"
)
_SYSTEM = re.compile(r"[a-z0-9][a-z0-9.+-]+(=\S+)?")
_PACKAGE = re.compile(r"(@[\w.-]+/)?[\w.-]+(@[\w.^~-]+)?")
_OURS = re.compile(r"(?i)path|.*proxy|pip_.*index.*|npm_config_.*|home|pythonpath|.*(token|secret|password|key)")


@dataclass(frozen=True)
class Container:
    """`runs`: shell commands in their order, for people and models; the packages of them by who installs them; `env`: plain variables."""

    sources: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    workdir: str = ""
    system: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()
    features: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.sources)


def container(files: Mapping[str, str]) -> Container:
    """Of all such files that the tree has; empty where it has none."""
    sources: list[str] = []
    instructions_found: list[tuple[str, str]] = []
    features: list[str] = []
    for path in DEVCONTAINERS:
        if path in files and (config := _devcontainer(files[path])) is not None:
            sources.append(path)
            instructions_found += list(_of_devcontainer(config))
            features += [str(name) for name in _table(config.get("features"))]
            build = _table(config.get("build"))
            named = build.get("dockerfile") or config.get("dockerFile")
            if isinstance(named, str):
                sources.append(posixpath.normpath(posixpath.join(posixpath.dirname(path), named)))
    sources += [path for path in FILES if path in files]
    for path in dict.fromkeys(sources):
        if path in files and path not in DEVCONTAINERS:
            instructions_found += list(instructions(files[path]))
    found = tuple(dict.fromkeys(path for path in sources if path in files))
    return _gathered(found, instructions_found, tuple(features))


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """(INSTRUCTION, arguments) of a Dockerfile, lines joined; here-documents are skipped."""
    lines = iter(text.splitlines())
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        whole = line
        while whole.rstrip().endswith("\\"):
            following = next(lines, "")
            whole = whole.rstrip()[:-1] + (" " if following.lstrip().startswith("#") else f" {following.strip()}")
            if following.lstrip().startswith("#"):
                whole += "\\"
        for end in re.findall(r"<<-?[\"']?(\w+)", whole):
            for inner in lines:
                if inner.strip() == end:
                    break
        if match := _INSTRUCTION.match(whole):
            yield match[1].upper(), re.sub(r"^(--\S+\s+)+", "", match[2].strip())


def _gathered(
    sources: tuple[str, ...], instructions_found: list[tuple[str, str]], features: tuple[str, ...]
) -> Container:
    runs = [text for word, text in instructions_found if word == "RUN"]
    env = {name: value for word, text in instructions_found if word == "ENV" for name, value in _variables(text)}
    commands = [words for run in runs for words in _commands(run)]
    workdirs = [text for word, text in instructions_found if word == "WORKDIR"]
    return Container(
        sources,
        tuple(dict.fromkeys(text.split()[0] for word, text in instructions_found if word == "FROM" and text)),
        tuple(runs),
        tuple((name, value) for name, value in env.items() if "$" not in value and not _OURS.fullmatch(name)),
        workdirs[-1] if workdirs else "",
        _named(commands, _SYSTEM, ("apt-get", "apt", "apk", "yum", "dnf", "microdnf"), ("install", "add")),
        _named(commands, _REQUIREMENT, ("pip", "pip3"), ("install",)),
        _named(commands, _PACKAGE, ("npm", "yarn", "pnpm"), ("install", "i", "add")),
        features,
    )


def _commands(run: str) -> Iterator[list[str]]:
    """The simple commands of a RUN line, in its shell or its list form."""
    if run.startswith("["):
        try:
            words = json.loads(run)
        except (ValueError, RecursionError):
            words = None
        if isinstance(words, list) and all(isinstance(word, str) for word in words):
            if words[:2] in (["sh", "-c"], ["bash", "-c"], ["/bin/sh", "-c"], ["/bin/bash", "-c"]) and len(words) == 3:
                yield from _commands(words[2])
            else:
                yield words
            return
    for part in re.split(r"&&|\|\||[;\n|]", run):
        try:
            words = shlex.split(part, comments=True)
        except ValueError:
            continue  # quotes across a separator: no plain list of packages
        while words and (re.fullmatch(r"\w+=.*", words[0]) or words[0] in ("sudo", "exec", "uv")):
            words = words[1:]
        if len(words) > 2 and re.fullmatch(r"python[\d.]*", words[0]) and words[1] == "-m":
            words = words[2:]
        if words:
            yield words


# Options of pip, apt and npm that take a word of their own.
_TAKES = {
    "-r",
    "-c",
    "-e",
    "-t",
    "-i",
    "-f",
    "--requirement",
    "--constraint",
    "--index-url",
    "--extra-index-url",
    "--target",
    "-o",
    "--prefix",
}


def _named(
    commands: list[list[str]], shape: re.Pattern[str], programs: tuple[str, ...], verbs: tuple[str, ...]
) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for words in commands:
        if posixpath.basename(words[0]) not in programs:
            continue
        at = next((number for number, word in enumerate(words) if word in verbs), None)
        taken = True
        for word in words[at + 1 :] if at is not None else ():
            if taken and not word.startswith("-") and shape.fullmatch(word):
                found[word.split("=")[0] if shape is _SYSTEM else word] = None
            taken = word not in _TAKES
    return tuple(found)


def _variables(text: str) -> Iterator[tuple[str, str]]:
    """`A=b C="d e"`, or the old `A b c`."""
    try:
        words = shlex.split(text)
    except ValueError:
        return
    if words and "=" not in words[0]:
        yield words[0], text.partition(" ")[2].strip()
        return
    for word in words:
        name, equals, value = word.partition("=")
        if equals and re.fullmatch(r"[A-Za-z_]\w*", name):
            yield name, value


def _devcontainer(text: str) -> dict[str, Any] | None:
    """JSON with comments and trailing commas; None where it is broken."""
    plain = _COMMENTS.sub(lambda match: match[1] or " ", text)
    plain = _TRAILING.sub(lambda match: match[1] or "", plain)
    try:
        config = json.loads(plain)
    except (ValueError, RecursionError):
        return None
    return config if isinstance(config, dict) else None


def _of_devcontainer(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if isinstance(config.get("image"), str):
        yield "FROM", config["image"]
    for key in ("containerEnv", "remoteEnv"):
        for name, value in _table(config.get(key)).items():
            if isinstance(value, str):
                yield "ENV", f"{name}={shlex.quote(value)}"
    for hook in HOOKS:
        value = config.get(hook)
        for one in value.values() if isinstance(value, dict) else [value]:
            if isinstance(one, str):
                yield "RUN", one
            elif isinstance(one, list) and all(isinstance(word, str) for word in one):
                yield "RUN", shlex.join(one)


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
