"""One run under the parent inside the sandbox, whose one line of answer is all that is believed."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files as resources
from typing import Any

from etude.sandbox.protocol import Disposable
from etude.sandbox.spec import ExecResult, SandboxSpec
from etude.tasks.running.channel import INSIDE, ParentReport, Prepared

MAX_ANSWER_BYTES = 96 << 20  # a report of 16 MiB and as much output, in base64
GRACE_S = 5.0  # the parent's own start and end, in addition to the tests' limit


@dataclass(frozen=True)
class Silent:
    """The parent never answered: it was killed, or could not start."""

    result: ExecResult


@cache
def _here() -> str:
    return str(resources("etude.tasks.running") / "inside")


def supervised_spec(spec: SandboxSpec) -> SandboxSpec:
    """`spec` with the parent and its watch bound read-only."""
    bind = (_here(), INSIDE)
    return spec if bind in spec.read_only_binds else replace(spec, read_only_binds=(*spec.read_only_binds, bind))


async def supervise(sandbox: Disposable, prepared: Prepared, timeout_s: float) -> ParentReport | Silent:
    """Raises InfraError, UserError."""
    nonce = secrets.token_hex(16)
    request = {
        "nonce": nonce,
        "argv": _argv(sandbox.spec.env, prepared),
        "env": _env(sandbox.spec.env, prepared),
        "report": prepared.report,
        "watched": prepared.watched,
        "keep_output": prepared.keep_output,
        "needed": sorted(prepared.needed),
    }
    result = await sandbox.run(
        ["python3", "-I", "-S", f"{INSIDE}/etude_supervise.py"],
        stdin=json.dumps(request).encode(),
        timeout_s=timeout_s + GRACE_S,
        max_output_bytes=MAX_ANSWER_BYTES,
    )
    line = result.out.rstrip(b"\n").rpartition(b"\n")[2]
    mark, _, answer = line.partition(b" ")
    if result.timed_out or mark != nonce.encode():
        return Silent(result)
    try:
        return _answer(json.loads(answer))
    except (ValueError, KeyError, TypeError, RecursionError):  # not what the parent writes
        return Silent(result)


def _env(env: Mapping[str, str], prepared: Prepared) -> dict[str, str]:
    """Nothing of the workspace is looked in while the watch and the runner are loaded; it comes later, by the launcher."""
    if not prepared.watched:
        return dict(prepared.env)
    kept = [path for path in _python_path(env) if not _below(path, _later(prepared))]
    return {**prepared.env, "PYTHONPATH": ":".join(kept), "PYTEST_ADDOPTS": "", "PYTHONSTARTUP": ""}


def _argv(env: Mapping[str, str], prepared: Prepared) -> list[str]:
    """With the workspace's folders of PYTHONPATH among those that the launcher adds, behind its own."""
    if not prepared.watched:
        return prepared.argv
    end, later = prepared.argv.index("--"), _later(prepared)
    more = [path for path in dict.fromkeys(_python_path(env)) if path not in later and _below(path, later)]
    return [*prepared.argv[:end], *more, *prepared.argv[end:]]


def _later(prepared: Prepared) -> list[str]:
    return prepared.argv[4 : prepared.argv.index("--")]


def _python_path(env: Mapping[str, str]) -> list[str]:
    return [path for path in env.get("PYTHONPATH", "").split(":") if path]


def _below(path: str, folders: list[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _answer(fields: dict[str, Any]) -> ParentReport:
    return ParentReport(
        rc=fields["rc"],
        seconds=fields["seconds"],
        events=tuple(fields["events"]),
        forged=fields["forged"],
        decided=fields["decided"],
        tail=fields["tail"],
        output=base64.b64decode(fields["output"]),
        reports=tuple(base64.b64decode(one) for one in fields["report"]),
    )
