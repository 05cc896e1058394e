"""What an OCI runtime would leave if we died, for the ledger: containers in its state folder, helpers, and the folder itself."""

from __future__ import annotations

from pathlib import Path

from etude.sandbox.cleanup.undo import Command, Folder, Tenants, Undo

# $1: state folder; $2: pattern of its entries, one for each container, which is named by what stands before "_sandbox:"; then the runtime.
_DELETE = """
state=$1 pattern=$2; shift 2
cd "$state" 2>/dev/null || exit 0
for entry in $pattern; do
    [ -e "$entry" ] || continue
    "$@" delete --force "${entry%%_sandbox:*}" || exit
done
"""


def of_runtime(folder: Path, runtime: list[str], pattern: str) -> tuple[Undo, ...]:
    """`runtime`: its command line up to the verb, with its state in `folder`/state."""
    delete = Command(("/bin/sh", "-c", _DELETE, "sh", str(folder / "state"), pattern, *runtime))
    return delete, Tenants(str(folder)), Folder(str(folder))
