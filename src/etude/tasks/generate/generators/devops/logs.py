"""A day's log of a service made of a project's modules, in which requests fail by one value of one dimension.

Requests everywhere miss their deadline now and then; those of the culprit (a host, a client, a module, a build) do so often. Red herrings:
slow disks, a burst of refused inputs that ended by itself, restarts, more builds than changed anything. A build is named in a host's start
lines alone, so that it has to be joined by host and time.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

Dimension = Literal["host", "client", "module", "build"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
REQUESTS = 1500
OFTEN, SELDOM = 0.5, 0.015  # how often a request misses its deadline: the culprit's, and all others'
CLEARLY = 4.0  # times the share of the next: below that the answer would be a matter of opinion
HOSTS, CLIENTS, BUILDS = 6, 12, 9


@dataclass(frozen=True)
class LogRequest:
    """One request; `late` if it missed its deadline."""

    host: str
    client: str
    module: str
    build: str
    late: bool


@dataclass(frozen=True)
class Day:
    """`text`: the log. `shares`: of requests that were late, by the values of the dimension asked about, the culprit's first."""

    text: str
    culprit: str
    shares: dict[str, float]

    @property
    def clear(self) -> bool:
        first, *rest = self.shares.values()
        return first >= CLEARLY * max(rest, default=0.0) > 0


def day(dimension: Dimension, modules: Sequence[str], rng: random.Random) -> Day:
    """Pure in its arguments."""
    hosts = [f"node-{number}" for number in rng.sample(range(10, 99), HOSTS)]
    clients = [f"c-{number}" for number in rng.sample(range(1000, 9999), CLIENTS)]
    builds = [f"b{rng.randrange(16**6):06x}" for _ in range(BUILDS)]
    culprit = rng.choice({"host": hosts, "client": clients, "module": list(modules), "build": builds[2:-2]}[dimension])
    running = dict.fromkeys(hosts, builds[0])
    # Builds reach the hosts one after the other: at any time two or three of them run.
    rollout = sorted(
        (REQUESTS * (n + 1) // (BUILDS + 1) + rng.randrange(60), h, b) for n, b in enumerate(builds[1:]) for h in hosts
    )
    lines, requests, clock = [f"{_at(0)} {host} INFO started build={builds[0]} workers=4" for host in hosts], [], 0.0
    burst = rng.randrange(REQUESTS // 6, REQUESTS // 3)
    for number in range(REQUESTS):
        clock += rng.expovariate(1 / 20)
        while rollout and rollout[0][0] <= number:
            _, host, build = rollout.pop(0)
            running[host] = build
            lines.append(f"{_at(clock)} {host} INFO started build={build} workers=4")
        host, client, module = rng.choice(hosts), rng.choice(clients), rng.choice(modules)
        values = {"host": host, "client": client, "module": module, "build": running[host]}
        one = LogRequest(
            host, client, module, running[host], rng.random() < (OFTEN if values[dimension] == culprit else SELDOM)
        )
        requests.append(one)
        lines.append(_line(clock, one, number, rng))
        lines += _herring(clock, number - burst, hosts, clients, rng)
    shares = _shares(dimension, requests)
    ordered = {culprit: shares.pop(culprit, 0.0), **shares}
    return Day("".join(f"{line}\n" for line in lines), culprit, ordered)


def records(text: str) -> str:
    """The log as lines of JSON, as a log service takes them: time in seconds since 1970, host and level as fields, the rest a message."""
    rows = []
    for line in text.splitlines():
        at, host, level, message = line.split(" ", 3)
        rows.append({"time": datetime.fromisoformat(at).timestamp(), "host": host, "level": level, "message": message})
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def _line(clock: float, one: LogRequest, number: int, rng: random.Random) -> str:
    head = f"{_at(clock)} {one.host}"
    about = f"[{one.module}] request={number:05d} client={one.client}"
    if one.late:
        return f"{head} ERROR {about} deadline exceeded after 2000 ms"
    return f"{head} INFO {about} status=200 took={rng.randrange(8, 900)} ms"


def _herring(clock: float, since: int, hosts: Sequence[str], clients: Sequence[str], rng: random.Random) -> list[str]:
    found = []
    if 0 <= since < 30:
        found.append(
            f"{_at(clock)} {rng.choice(hosts)} ERROR input of client={clients[0]} refused: not UTF-8 at byte {rng.randrange(4096)}"
        )
    if rng.random() < 0.03:
        found.append(f"{_at(clock)} {hosts[1]} WARN disk: write took {rng.randrange(200, 900)} ms")
    if rng.random() < 0.02:
        found.append(f"{_at(clock)} {rng.choice(hosts)} WARN worker restarted after 500 requests")
    return found


def _shares(dimension: Dimension, requests: Sequence[LogRequest]) -> dict[str, float]:
    late: dict[str, list[bool]] = {}
    for one in requests:
        late.setdefault(getattr(one, dimension), []).append(one.late)
    return {value: sum(ones) / len(ones) for value, ones in late.items()}


def _at(clock: float) -> str:
    seconds = int(clock)
    return f"2024-03-05T{6 + seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{int(clock * 1000) % 1000:03d}Z"
