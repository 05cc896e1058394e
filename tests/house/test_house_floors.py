"""The rooms that open fast stay light: proven by importing them, which also sees what a linter can't."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import etude

SOURCE = Path(etude.__file__).parent
LIGHT_ROOMS = ["recipe", "trace", "events", "policy", "report", "redact", "link", "foreign", "index"]


def light_modules() -> list[str]:
    """Every module that may import neither torch nor ray: light rooms, all settings, the command line."""
    files = [f for room in LIGHT_ROOMS for f in sorted((SOURCE / room).rglob("*.py"))]
    files += sorted(SOURCE.glob("*/settings.py")) + sorted((SOURCE / "cli").rglob("*.py"))
    names = [".".join(("etude", *f.relative_to(SOURCE).with_suffix("").parts)) for f in files]
    return [n.removesuffix(".__init__") for n in names if not n.endswith("__main__")]


def test_light_modules_import_neither_torch_nor_ray() -> None:
    code = "import sys, importlib\n" + "".join(f"importlib.import_module({name!r})\n" for name in light_modules())
    code += "print(*sorted({'torch', 'ray', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_every_room_has_a_docstring_and_only_that_in_its_init() -> None:
    for init in sorted(SOURCE.glob("*/__init__.py")):
        spec = importlib.util.spec_from_file_location("room", init)
        assert spec is not None
        lines = [line for line in init.read_text().splitlines() if line.startswith(("import ", "from "))]
        assert init.read_text().lstrip().startswith('"""'), f"{init.parent.name}/__init__.py needs a docstring"
        assert lines == [], f"{init.parent.name}/__init__.py imports {lines}; keep rooms light"
