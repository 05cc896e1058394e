"""Two network namespaces with nothing but a long thin link between them; by netem where the kernel has it, else by a process (`pump.py`)."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from regional import pump

# The round trip is twice that, 120 ms; rate and loss are of each way.
DELAY_MS, MBIT, LOSS = 60, 200, 0.01
HOME, FAR = "10.77.0.1", "10.77.0.2"


def available() -> str:
    """What is missing for it; empty if nothing is."""
    if os.geteuid():
        return "network namespaces with a link between them are root's to make"
    if not Path("/dev/net/tun").exists():
        return "no /dev/net/tun"
    name = f"etude-{secrets.token_hex(3)}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return "`ip netns add` is refused"
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return ""


class Link:
    """`home` and `far` are words that lead a command into either end."""

    def __init__(self, folder: Path, names: Sequence[str], netem: bool) -> None:
        self.folder, self.names, self.netem = folder, names, netem

    def inside(self, number: int) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.names[number]}"]

    @property
    def home(self) -> list[str]:
        return self.inside(0)

    @property
    def far(self) -> list[str]:
        return self.inside(1)

    def cut(self) -> None:
        """Nothing passes from now on. Neither end gets a message about it."""
        self._shape("100%") if self.netem else (self.folder / "cut").touch()

    def mend(self) -> None:
        self._shape(f"{LOSS:.0%}") if self.netem else (self.folder / "cut").unlink()

    def passed(self) -> dict[str, int]:
        """Bytes that came out of the link so far, both ways together."""
        if not self.netem:
            return json.loads((self.folder / "passed.json").read_text())
        output = run(
            [*self.home, "cat", *(f"/sys/class/net/{pump.DEVICE}/statistics/{way}_bytes" for way in ("rx", "tx"))]
        )
        return {"bytes": sum(map(int, output.split()))}

    def _shape(self, loss: str) -> None:
        for number in (0, 1):
            words = ["netem", "delay", f"{DELAY_MS}ms", "rate", f"{MBIT}mbit", "loss", loss, "limit", "10000"]
            run([*self.inside(number), "tc", "qdisc", "replace", "dev", pump.DEVICE, "root", *words])


@contextmanager
def linked(folder: Path) -> Iterator[Link]:
    """Both ends up, until the end of the context; `folder` holds what the link tells."""
    folder.mkdir(parents=True)
    names = [f"etude-{secrets.token_hex(3)}" for _ in range(2)]
    for name in names:
        run(["ip", "netns", "add", name])
    link = Link(folder, names, has_netem(names[0]))
    process = None
    try:
        if link.netem:
            ends = ["type", "veth", "peer", "name", pump.DEVICE, "netns", names[1]]
            run([*link.home, "ip", "link", "add", "name", pump.DEVICE, *ends])
        else:
            process = start_pump(folder, names)
        for number, address in enumerate((HOME, FAR)):
            inside = link.inside(number)
            run([*inside, "ip", "address", "add", f"{address}/30", "dev", pump.DEVICE])
            run([*inside, "ip", "link", "set", pump.DEVICE, "up"])
            run([*inside, "ip", "link", "set", "lo", "up"])
        if link.netem:
            link.mend()
        yield link
    finally:
        if process is not None:
            process.kill()
            process.wait()
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def has_netem(name: str) -> bool:
    """Whether this kernel shapes by itself."""
    words = ["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    if subprocess.run(words, capture_output=True).returncode:
        return False
    run(["ip", "netns", "exec", name, "tc", "qdisc", "delete", "dev", "lo", "root"])
    return True


def start_pump(folder: Path, names: Sequence[str]) -> subprocess.Popen[bytes]:
    arguments = [str(one) for one in (*names, folder, DELAY_MS, MBIT, LOSS)]
    with open(folder / "pump.log", "wb") as log:
        process = subprocess.Popen([sys.executable, pump.__file__, *arguments], stdout=log, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 20
    while not (folder / "up").exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the link does not come up: {(folder / 'pump.log').read_text()[-500:]}")
        time.sleep(0.02)
    return process


def run(words: Sequence[str]) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout
