"""Builds the wheel with the C runner of sandboxes in it, so that machines without a compiler have one.

Where the compiler can't make a static program the wheel holds no binary, and its tag names every platform.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parent / "src"))

from etude.sandbox.native import build


class BuildWithRunner(build_py):
    """An editable install gets no binary: its sources change, and `native.build` compiles them on first use."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "etude" / "sandbox" / "native" / build.PREBUILT.name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            build.compile_to(target, *build.FLAGS)
        except build.Unbuildable as error:
            self.announce(f"the wheel holds no command runner for sandboxes: {error}", level=3)
            target.unlink(missing_ok=True)


class PlatformWheel(bdist_wheel):
    """The tag names the platform if the wheel holds a binary. The binary is static, so no C library is a part of the tag."""

    def get_tag(self) -> tuple[str, str, str]:
        runner = Path(self.bdist_dir) / "etude" / "sandbox" / "native" / build.PREBUILT.name
        return ("py3", "none", f"linux_{platform.machine()}") if runner.is_file() else super().get_tag()


commands: dict[str, Any] = {"build_py": BuildWithRunner, "bdist_wheel": PlatformWheel}
setup(cmdclass=commands)
