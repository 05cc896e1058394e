"""The code that runs inside, as one blob for a launched interpreter: there the package has no path, and must have none.

Compiled by the very Python that will run it, once a process. `COMMAND` starts it from a descriptor, so that no path and no program text
shows on a command line inside.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import subprocess
from pathlib import Path

from etude.sandbox.errors import Unsupported
from etude.sandbox.inside.root import INSIDE_UID
from etude.sandbox.interpreter import Interpreter

# `code`: the descriptor of this blob. `runner`: the descriptor or the path of the C runner that the process becomes, or -1.
COMMAND = "import os,marshal;c,m=marshal.loads(os.pread({code},1<<24,0));exec(c,{{'m':m,'fd':{control},'runner':{runner},'code':{code}}})"
# The same where no namespaces are made yet: the code makes them, with a separate network ("none") or the machine's ("host").
ISOLATING = COMMAND.removesuffix("}})") + ",'network':{network!r}}})"
# The same from a file, with the control socket as stdin; argv of the command line shows only this.
FROM_FILE = "import marshal;f=open({path!r},'rb');c,m=marshal.loads(f.read());f.close();exec(c,{{'m':m,'fd':0,'runner':-1,'code':-1}})"
# In a user namespace whose only user is uid 0: makes one more, in which that user is another number, and starts the rest of its command line
# there. Files of a process that can't be dumped belong to uid 0 of the namespace that it was started in; where there is none they are
# closed to everybody inside, and commands, which have the runner's own user, can't open what the kernel keeps about the runner.
NESTED = (
    "import ctypes,os,sys;u=os.getuid();g=os.getgid();c=ctypes.CDLL(None,use_errno=True);"
    "c.unshare(0x10000000) and sys.exit('the runner needs a separate user namespace: '+os.strerror(ctypes.get_errno()));"
    "w=lambda n,t:os.write(os.open('/proc/self/'+n,os.O_WRONLY|os.O_CLOEXEC),t.encode());w('setgroups','deny');"
    f"w('uid_map','{INSIDE_UID} %d 1'%u);w('gid_map','{INSIDE_UID} %d 1'%g);"
    "[c.prctl(24,n,0,0,0) for n in range(64)];os.execv(sys.argv[1],sys.argv[1:])"  # the bounding set is full again in a new namespace
)
NEEDS = ("CAP_SETFCAP",)  # to map uid 0 of the outer namespace; it is gone with the step into the inner one
_PATIENCE_S = 30.0  # 0.1 s on a quiet core
_BOOT = """
import sys
from importlib.machinery import ModuleSpec
class Blob:
    def find_spec(self, name, path=None, target=None):
        if name in m:
            return ModuleSpec(name, self, origin=name, is_package=m[name][0])
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        module.__file__ = module.__name__.replace(".", "/") + ".py"
        exec(m[module.__name__][1], module.__dict__)
blob = Blob()
sys.meta_path.insert(0, blob)
if globals().get("warm"):
    from etude.sandbox.inside import warm_server
else:
    from etude.sandbox.inside import entry
sys.meta_path.remove(blob)
m.clear()
if globals().get("warm"):
    warm_server.main(fd)
else:
    entry.main(fd, runner, code, globals().get("network", ""))
"""
_COMPILE = """
import json, marshal, sys
boot, modules = json.load(sys.stdin)
name = lambda module: module.replace(".", "/") + ".py"
codes = {module: (package, compile(text, name(module), "exec")) for module, (package, text) in modules.items()}
sys.stdout.buffer.write(marshal.dumps((compile(boot, "etude/boot.py", "exec"), codes)))
"""


@functools.cache
def code(python: Interpreter) -> bytes:
    """Boot program and modules, marshalled. Raises Unsupported."""
    folder = Path(__file__).parent.parent / "inside"
    inside = "etude.sandbox.inside"
    modules: dict[str, tuple[bool, str]] = {package: (True, "") for package in ("etude", "etude.sandbox", inside)}
    for path in sorted(folder.glob("*.py")):
        if path.stem != "__init__":
            modules[f"{inside}.{path.stem}"] = (False, path.read_text())
    try:
        done = subprocess.run(
            [python.path, "-I", "-S", "-c", _COMPILE],
            input=json.dumps([_BOOT, modules]).encode(),
            capture_output=True,
            timeout=_PATIENCE_S,
            env={},
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unsupported(f"{python.path} can't compile what runs inside sandboxes: {error}") from None
    return done.stdout


def descriptor(python: Interpreter) -> int:
    """The blob in a nameless, sealed file; the caller closes it."""
    fd = os.memfd_create("etude", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(code(python))
    while view:
        view = view[os.write(fd, view) :]
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd
