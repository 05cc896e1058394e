"""The labs in this folder, and the environments of published packages, are importable by their names."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE, HERE.parents[1] / "parity"):
    sys.path.insert(0, str(folder))  # tests are no package: this is how they share a module
