"""The modules of this folder, and what asks the packages, are importable by their names."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "tasks" / "importers", HERE.parent / "learn" / "model"):
    sys.path.insert(0, str(folder))  # tests are no package: this is how they share a module
