"""The packages that open fast stay light: proven by importing them, which also sees what a linter can't."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import etude

SOURCE = Path(etude.__file__).parent
LIGHT = ["core", "sandbox", "agent", "tasks", "learn/corpus", "rollout", "evaluate/report", "pipeline/recipe", "cli"]
# A transport over Ray, and programs that run elsewhere: inside a sandbox or in a child process.
ELSEWHERE = ("sandbox/fleet/wire/ray_host.py", "/inside/")


def light_modules() -> list[str]:
    """Every module that may import neither torch nor ray: light packages, all settings, the command line."""
    files = [f for package in LIGHT for f in sorted((SOURCE / package).rglob("*.py"))]
    files += sorted(SOURCE.rglob("*settings.py"))
    names = [
        ".".join(("etude", *f.relative_to(SOURCE).with_suffix("").parts))
        for f in files
        if not any(part in str(f) for part in ELSEWHERE)
    ]
    return sorted({n.removesuffix(".__init__") for n in names if not n.endswith("__main__")})


def test_light_modules_import_neither_torch_nor_ray() -> None:
    code = "import sys, importlib\n" + "".join(f"importlib.import_module({name!r})\n" for name in light_modules())
    code += "print(*sorted({'torch', 'ray', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_every_package_has_a_docstring_and_its_init_imports_nothing() -> None:
    for init in sorted(SOURCE.glob("*/__init__.py")):
        spec = importlib.util.spec_from_file_location("package", init)
        assert spec is not None
        lines = [line for line in init.read_text().splitlines() if line.startswith(("import ", "from "))]
        assert init.read_text().lstrip().startswith('"""'), f"{init.parent.name}/__init__.py needs a docstring"
        assert lines == [], f"{init.parent.name}/__init__.py imports {lines}; keep packages light"
