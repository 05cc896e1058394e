"""The step that installs what package.json asks for below DEPS, and leaves out what the registry does not have."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache

from etude.tasks.environment.environment import DEPS
from etude.tasks.generate.install.left_out import LEFT_OUT

PLACE = f"{DEPS}/js"
NODE = (
    f"node-linux-{'arm64' if platform.machine() == 'aarch64' else 'x64'}"  # the program itself, as the registry has it
)
NEWER = 24  # the major version that is tried where this machine's lacks what tests call
_PATIENCE_S = 30.0
_NPM = "HOME=/tmp npm install --ignore-scripts --no-package-lock --legacy-peer-deps --loglevel=error --cache=/tmp/.npm"
# A requirement without which the rest installs is left out: names that no registry has any more, versions that were taken back.
_PROGRAM = """\
const { appendFileSync, readFileSync, writeFileSync } = require('node:fs');
const { spawnSync } = require('node:child_process');
const folders = FOLDERS, singly = SINGLY;
const npm = (...words) => spawnSync('sh', ['-c', NPM + ' "$@"', 'sh', ...words], { encoding: 'utf8' });
const leave = (name) => appendFileSync(LEFT_OUT, name + '\\n');
const absent = /No matching version found for (@?[^@\\s]+)@|404 .*'(@?[^@']+)@/;

// A version that is gone is replaced by any other, a name that is gone by nothing.
function without(name, gone) {
  for (const file of folders.map((folder) => `${folder || '.'}/package.json`)) {
    const asked = JSON.parse(readFileSync(file, 'utf8'));
    if (name === undefined || !Object.hasOwn(asked.dependencies, name)) continue;
    leave(`${name}@${asked.dependencies[name]}`);
    if (gone || asked.dependencies[name] === '*') delete asked.dependencies[name];
    else asked.dependencies[name] = '*';
    writeFileSync(file, JSON.stringify(asked));
    return true;
  }
  return false;
}

let done = npm();
while (done.status !== 0) {
  const found = done.stderr.match(absent);
  if (!without(found?.[1] ?? found?.[2], found?.[1] === undefined)) break;
  done = npm();
}
if (done.status !== 0 && singly.length) {
  writeFileSync('package.json', '{"name": "tree", "version": "0.0.0"}');
  for (const one of singly) if (npm(one).status !== 0) leave(one);
} else {
  process.stderr.write(done.stderr);
  process.exitCode = done.status ?? 1;
}
"""
# Packages of one author resemble each other down to their tests, and no test of the project runs those of its dependencies. A folder that
# a package gives out stays: declarations of types, and what its package.json names.
WITHOUT_TESTS = (
    f"find {PLACE}/node_modules -type d -name test -path '*/node_modules/*/test' -not -path '*/@types/*' -prune"
    """ -exec sh -c 'if [ -f "$1/../package.json" ] && ! grep -q "\\"[.]/test[/\\"]" "$1/../package.json"; then rm -rf "$1"; fi' _ {} \\;"""
)


@cache
def own_node() -> int:
    """The major version of this machine's node, which sandboxes run; 0 where there is none."""
    try:
        done = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=_PATIENCE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.match(r"v(\d+)", done.stdout)
    return int(found[1]) if found else 0


def newer_node(required: int) -> dict[str, str]:
    """The requirement that brings the node that a package asks for, where this machine's is older. Its program is first on the path."""
    own = own_node()
    return {NODE: f"^{required}"} if 0 < own < required else {}


def install_step(folders: Sequence[str], singly: Mapping[str, str]) -> str:
    """The step, for the package.json files of these folders below PLACE. `singly`: installed one by one where all at once can't be."""
    values = {
        "FOLDERS": list(folders),
        "SINGLY": [f"{name}@{at}" for name, at in singly.items()],
        "NPM": _NPM,
        "LEFT_OUT": LEFT_OUT,
    }
    program = re.sub(rf"\b({'|'.join(values)})\b", lambda found: json.dumps(values[found[1]]), _PROGRAM)
    return f"cd {PLACE} && node - <<'EOF'\n{program}EOF"
