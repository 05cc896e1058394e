"""Takes what a build put of the project itself out of its environment: nothing but the workdir may tell what the project's code says.

Compiled modules and libraries, which the tree has no Python for, move into the tree, as a build in place would have left them.

The scripts run with the environment's own Python, isolated: what the workdir tells of itself (an egg-info) names the workdir's own files.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

# Its installed modules go; of its metadata what tools ask for stays, and the README within it goes. An extension whose name is a module or a
# package of the tree too (mypyc, Cython over Python files) goes as well: it would be imported in place of the tree's.
_INSTALLED = """import re, shutil, sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
roots = [Path(root) for root in sys.argv[1].split(":")]
def place(file):
    if not re.search(r"[.]so([.][0-9]+)*$", file.name):
        return None
    root = next((root for root in roots if len(file.parts) > 1 and (root / file.parts[0]).is_dir()), roots[0])
    plain = root / file.parent / file.name.partition(".")[0]
    taken = [root / file, plain.with_suffix(".py"), plain / "__init__.py"]
    return None if any(one.exists() for one in taken) else root / file
for name in sys.argv[2:]:
    try:
        listed = files(name) or ()
    except PackageNotFoundError:
        continue
    for file in listed:
        path = file.locate()
        if not path.is_file() or "/bin/" in str(path.resolve()):
            continue
        if ".dist-info" not in str(file):
            if to := place(file):
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, to)
            path.unlink()
        elif path.name == "METADATA":
            headers = path.read_text("utf-8", "replace").partition("\\n\\n")[0]
            path.write_text(re.sub(r"(?m)^Description:.*\\n?(^[ \\t].*\\n?)*", "", headers).rstrip() + "\\n\\n", "utf-8")
"""
# What other packages carry of it (setuptools has more_itertools) is the workdir's.
_VENDORED = """import shutil, sys
from pathlib import Path
roots = [Path(root) for root in sys.argv[1].split(":")]
holders = {"_vendor", "vendor", "_vendored", "vendored", "third_party"}
for name in sys.argv[2:]:
    for copy in [*Path(sys.prefix).rglob(name), *Path(sys.prefix).rglob(name + ".py")]:
        own = [root / copy.name for root in roots if (root / copy.name).exists()]
        if copy.parent.name not in holders or copy.is_symlink() or not own:
            continue
        shutil.rmtree(copy) if copy.is_dir() else copy.unlink()
        copy.symlink_to(own[0])
"""


def remove_copies(
    python: str, distributions: Iterable[str], modules: Iterable[str], python_path: str
) -> tuple[str, ...]:
    """Steps of a recipe. `python_path`: where the project's own `modules` lie, as `PYTHONPATH` has it."""
    return (
        f"{python} -I -c {shlex.quote(_INSTALLED)} {python_path} {' '.join(distributions)}",
        f"{python} -I -c {shlex.quote(_VENDORED)} {python_path} {' '.join(modules)}".rstrip(),
    )
