"""What a snapshot holds that its recipe does not say: the versions that pip chose, the interpreter, and files that are no text."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from etude.sandbox.errors import InfraError
from etude.sandbox.protocol import Machines
from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment.environment import Environment
from etude.tasks.export.installation import Installation
from etude.tasks.leftovers import leftovers

MAX_TREE_BYTES = 64 << 20
LOOK = """
import json, sys
from importlib.metadata import distributions
found = sorted({(d.metadata["Name"], d.version) for d in distributions() if d.metadata["Name"]})
print(json.dumps({"python": list(sys.version_info[:2]), "found": found}))
"""


async def freeze_environment(
    environment: Environment, steps: Sequence[str], until: str, own: Collection[str], pool: Machines
) -> Installation:
    """Looked up in a sandbox of the snapshot. `own`: the project's names in its registry, which are no dependency. Raises InfraError,
    UserError where there is no such snapshot."""
    spec = SandboxSpec(snapshot=environment.snapshot, env=dict(environment.env), warm_python=False)
    box = await pool.create(spec)
    try:
        exported = await box.export(max_bytes=MAX_TREE_BYTES)
        python = environment.language == "python"
        done = await box.run(["python3", "-I", "-c", LOOK] if python else ["node", "--version"], timeout_s=60.0)
        if done.rc != 0:
            output = done.err.decode("utf-8", "replace").strip()[-200:]
            raise InfraError(
                f"the snapshot of {environment.name} does not say what it holds (status {done.rc}): {output}"
            )
    finally:
        await box.kill()
    image, constraints = _python(json.loads(done.out), own) if python else (_node(done.out.decode()), ())
    return Installation(environment, tuple(steps), image, until, constraints, binaries(exported))


def binaries(exported: Mapping[str, bytes]) -> dict[str, bytes]:
    """Of a whole tree, what is no UTF-8 text: tasks hold none of it, snapshots do."""
    hidden = leftovers(exported)
    return {path: data for path, data in exported.items() if path not in hidden and not _is_text(data)}


def _python(facts: Mapping[str, Any], own: Collection[str]) -> tuple[str, tuple[str, ...]]:
    names = {_plain(name) for name in own}
    pins = tuple(f"{name}=={version}" for name, version in facts["found"] if _plain(name) not in names)
    return "python:{}.{}-slim".format(*facts["python"]), pins


def _node(version: str) -> str:
    major = re.match(r"v(\d+)\.", version)
    if major is None:
        raise InfraError(f"node says {version[:40]!r} for its version")
    return f"node:{major[1]}-slim"


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in data
