"""The parent of a test run: starts it, reads its events from a pipe, ends what it left running, and alone speaks to the host.

    python3 -I -S etude_supervise.py     a request as JSON on stdin, `<nonce> <answer as JSON>` as the last line of stdout

The tested code is another process with the same user. It can't read this one's memory, descriptors or environment (PR_SET_DUMPABLE is 0
before it starts), holds neither its stdout nor its stdin, and so can't speak in its name; it can kill it, which is no answer, hence no
pass. Its orphans become children of this process (PR_SET_CHILD_SUBREAPER) and are killed before the report is read.
"""

import binascii
import ctypes
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import time

DUMPABLE, SUBREAPER = 4, 36  # prctl(2)
FAILED = 1  # pytest's status where some tests failed
TAIL_BYTES = 4000
ADDRESS = "0x[0-9a-f]{6,}"  # in the names of parametrized tests; differs from run to run
PAUSE_MS = 20  # events and output wait in their pipes so long, rather than that each of them wakes this process
MUCH_BYTES = 1 << 14
MOST_REPORT_BYTES = 16 << 20
MOST_OUTPUT_BYTES = 16 << 20


class Events:
    """Lines of the watched process: each with a digest under a key that only it and this process were given, chained in their order.
    `decided`: one of the needed tests did not pass, and no later line can change that."""

    def __init__(self, key, needed=()):
        self.key, self.rest, self.before, self.lines, self.forged = key, b"", b"", [], False
        self.needed, self.decided = frozenset(needed), False

    def take(self, data):
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            text, _, mac = line.rpartition(b" ")
            right = hashlib.blake2b(self.before + text, key=self.key, digest_size=16).hexdigest().encode()
            self.forged = self.forged or mac != right
            self.before = right
            self.lines.append(text.decode("ascii", "replace"))
            if self.needed and text.startswith(b"t ") and not self.forged:
                self.decided = self.decided or self.decides(*text.split(b" ")[2:])

    def decides(self, outcome, node):
        import re  # rare, and slow to load

        name = name_of(binascii.unhexlify(node).decode("utf-8", "replace"))
        return outcome != b"p" and re.sub(ADDRESS, "0x", name) in self.needed


def main():
    request = json.loads(sys.stdin.buffer.read())
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(DUMPABLE, 0, 0, 0, 0) or libc.prctl(SUBREAPER, 1, 0, 0, 0):
        sys.exit("prctl is refused here: the run can't be supervised")
    if os.path.isdir(request["report"]) and not os.path.islink(request["report"]):
        import shutil  # rare, and slow to load

        shutil.rmtree(request["report"])
    elif os.path.lexists(request["report"]):
        os.unlink(request["report"])
    start = time.perf_counter()
    try:
        events, output, rc = watched(request)
    except OSError as error:
        events, output, rc = Events(b""), ("{} can't be started: {}".format(request["argv"][0], error)).encode(), 127
    seconds = time.perf_counter() - start
    end_all()
    answer = {
        "rc": rc,
        "seconds": seconds,
        "events": events.lines,
        "forged": events.forged,
        "decided": events.decided,
        "tail": output[-TAIL_BYTES:].decode("utf-8", "replace"),
        "output": text_of(output) if request["keep_output"] else "",
        "report": report(request["report"]),
    }
    sys.stdout.write("\n{} {}\n".format(request["nonce"], json.dumps(answer)))
    sys.stdout.flush()


def watched(request):
    """Runs the command to its end; its events, its output (stdout and stderr as they came), its status."""
    key = os.urandom(32)
    events_read, events_write = os.pipe()
    key_read, key_write = os.pipe()
    output_read, output_write = os.pipe()
    os.write(key_write, key)
    os.close(key_write)
    words = [word.replace("{events}", str(events_write)).replace("{key}", str(key_read)) for word in request["argv"]]
    env = {**os.environ, **request["env"]}
    fds = (events_write, key_read) if request["watched"] else ()
    child = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=output_write,
        stderr=output_write,
        env=env,
        pass_fds=fds,
        start_new_session=True,
    )
    for fd in (events_write, key_read, output_write):
        os.close(fd)
    events, output = Events(key, request["needed"]), bytearray()
    takers = {events_read: events.take, output_read: lambda data: keep(output, data)}
    for fd in takers:
        os.set_blocking(fd, False)
    ended, much = ending(child), False
    while child.poll() is None and not events.decided:
        ended.poll(0 if much else PAUSE_MS)
        much = sum(drain(fd, taker) for fd, taker in takers.items()) > MUCH_BYTES
    for fd, taker in takers.items():
        drain(fd, taker)
    return events, bytes(output), FAILED if events.decided else child.returncode


def name_of(node):
    """Named as in pytest's own JUnit reports: `tests/test_a.py::T::test[x]` is `tests.test_a.T::test[x]`."""
    address, bracket, rest = node.partition("[")
    file, *names = address.split("::")
    holder = [file.replace("/", ".").removesuffix(".py"), *names[:-1]]
    return ".".join(holder) + "::" + (names[-1] if names else "") + bracket + rest


def ending(child):
    """What can be polled for the child's end; where there are no handles of processes it is only waited for a while."""
    waiting = select.poll()
    try:
        waiting.register(os.pidfd_open(child.pid), select.POLLIN)
    except (AttributeError, OSError):
        return select.poll()  # Python before 3.9, or a kernel before 5.3: there is no handle to wait for
    return waiting


def text_of(data):
    return binascii.b2a_base64(data, newline=False).decode()


def keep(output, data):
    output += data
    if len(output) > 2 * MOST_OUTPUT_BYTES:
        del output[:-MOST_OUTPUT_BYTES]


def drain(fd, taker):
    """Takes all that can be read at once; how much it was."""
    taken = 0
    while True:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return taken
        if not data:
            return taken
        taken += len(data)
        taker(data)


def end_all():
    """Kills what the command left, until nothing is. Orphans are ours (subreaper), so that none escapes by a second fork."""
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return
        for pid in descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.001)


def descendants(root):
    below, found = {}, []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:
                    parent = int(stat.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue  # gone while we looked
            below.setdefault(parent, []).append(int(name))
    waiting = [root]
    while waiting:
        children = below.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def report(path):
    """A plain file, or all XML files of a folder, one after the other in the order of their names; no links."""
    if not path or os.path.islink(path) or not os.path.exists(path):
        return []
    paths = (
        [path]
        if os.path.isfile(path)
        else sorted(os.path.join(path, n) for n in os.listdir(path) if n.endswith(".xml"))
    )
    found, room = [], MOST_REPORT_BYTES
    for one in paths:
        if os.path.islink(one) or not os.path.isfile(one):
            continue
        with open(one, "rb") as file:
            data = file.read(room + 1)
        room -= len(data)
        if room < 0:
            return []
        found.append(text_of(data))
    return found


if __name__ == "__main__":
    main()
