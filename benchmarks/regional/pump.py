"""A link for kernels without netem: two TUN devices in two network namespaces, and this process between them that delays, limits and drops.

    python pump.py NAMESPACE NAMESPACE FOLDER DELAY_MS MBIT LOSS

Each packet waits DELAY_MS after its turn on a line of MBIT, each way, and is dropped with probability LOSS, or where QUEUE_S of packets wait
before it. While `FOLDER/cut` exists nothing passes. `FOLDER/passed.json` counts the bytes that passed: of the store's port, and all.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import struct
import sys
import time
from collections import Counter
from pathlib import Path

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
DEVICE = "link0"
STORE_PORT = 9000
QUEUE_S = 0.25
LOOK_S = 0.02
TELL_S = 0.5


def tun(namespace: str) -> int:
    """A TUN device's descriptor; the device stays in its namespace, wherever this process goes on to."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as net:
        if libc.setns(net.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"no way into the namespace {namespace}")
    handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(handle, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    return handle


def of_store(packet: bytes) -> bool:
    """Whether it is a TCP packet from or to the port of the home store."""
    if len(packet) < 24 or packet[0] >> 4 != 4 or packet[9] != 6:
        return False
    at = 4 * (packet[0] & 15)
    source, target = struct.unpack_from("!HH", packet, at)
    ends = {(packet[12:16], source), (packet[16:20], target)}
    return any(port == STORE_PORT and address[3] == 1 for address, port in ends)


class Line:
    """One way of the link."""

    def __init__(self, delay_s: float, bytes_per_s: float, loss: float, dice: random.Random) -> None:
        self.delay_s, self.bytes_per_s, self.loss, self.dice = delay_s, bytes_per_s, loss, dice
        self.free_s = 0.0

    def due(self, packet: bytes, now_s: float) -> float | None:
        """When it comes out; None: it is lost."""
        start_s = max(now_s, self.free_s)
        if start_s - now_s > QUEUE_S or self.dice.random() < self.loss:
            return None
        self.free_s = start_s + len(packet) / self.bytes_per_s
        return self.free_s + self.delay_s


def main() -> None:
    first, second, folder, delay_ms, mbit, loss = sys.argv[1:7]
    place = Path(folder)
    ends = [tun(first), tun(second)]
    dice = random.Random(7)
    lines = [Line(float(delay_ms) / 1e3, float(mbit) * 125e3, float(loss), dice) for _ in ends]
    (place / "up").touch()
    heap: list[tuple[float, int, int, bytes]] = []
    passed: Counter[str] = Counter()
    number, looked_s, told_s, cut = 0, 0.0, 0.0, False
    while True:
        now_s = time.monotonic()
        if now_s - looked_s > LOOK_S:
            looked_s, cut = now_s, (place / "cut").exists()
        if now_s - told_s > TELL_S:
            told_s = now_s
            tell(place, passed)
        wait_s = min(LOOK_S, max(0.0, heap[0][0] - now_s)) if heap else LOOK_S
        for end in select.select(ends, [], [], wait_s)[0]:
            for packet in read_all(end):
                way = ends.index(end)
                due_s = lines[way].due(packet, time.monotonic())
                if due_s is not None and not cut:
                    number += 1
                    heapq.heappush(heap, (due_s, number, ends[1 - way], packet))
                else:
                    passed["dropped_packets"] += 1
        now_s = time.monotonic()
        while heap and heap[0][0] <= now_s:
            _, _, end, packet = heapq.heappop(heap)
            if cut:
                continue
            passed["bytes"] += len(packet)
            passed["store_bytes"] += len(packet) if of_store(packet) else 0
            try:
                os.write(end, packet)
            except OSError:  # the device is not up yet, or its queue is full: lost, as on any line
                passed["dropped_packets"] += 1


def read_all(end: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < 64:
        try:
            found.append(os.read(end, 65536))
        except OSError:
            break
    return found


def tell(place: Path, passed: Counter[str]) -> None:
    side = place / "passed.tmp"
    side.write_text(json.dumps(passed))
    side.rename(place / "passed.json")


if __name__ == "__main__":
    main()
