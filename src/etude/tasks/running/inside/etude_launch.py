"""Starts pytest with nothing of the workspace in the way: the runner and the watch are imported before any folder of it can be looked in.

    python3 etude_launch.py EVENTS_FD KEY_FD LATER… -- ARGUMENTS OF PYTEST

LATER: the folders that come on `sys.path` first once all is loaded (the workspace, what its PYTHONPATH says).
"""

import os
import sys


def main():
    del sys.path[0]  # this folder
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.append(here)
    import etude_watch  # pyright: ignore[reportMissingImports] - of this folder, inside
    import pytest

    sys.path.remove(here)
    at = sys.argv.index("--")
    events, key, later, arguments = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:at], sys.argv[at + 1 :]
    sys.path[:0] = later
    watch = etude_watch.made(events, key)
    sys.argv[:] = ["pytest", *arguments]
    for name in ("etude_watch", "etude_pristine"):
        sys.modules.pop(name, None)
    sys.exit(pytest.main(arguments, plugins=[watch]))


if __name__ == "__main__":
    main()
