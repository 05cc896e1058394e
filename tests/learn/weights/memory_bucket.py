"""A store's objects in memory, and what a test does to their readers."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable

from etude.learn.weights.errors import MissingShard, StoreTakenOver


class MemoryBucket:
    """`act(verb, key)` sees every request first, and may raise; `got` counts the bytes that went out by key."""

    def __init__(self, url: str = "memory") -> None:
        self.url = url
        self.objects: dict[str, bytes] = {}
        self.act: Callable[[str, str], None] = lambda verb, key: None
        self.got: Counter[str] = Counter()

    def get(self, key: str) -> tuple[bytes, str]:
        self.act("get", key)
        data = self._object(key)
        self.got[key] += len(data)
        return data, hashlib.sha256(data).hexdigest()

    def news(self, key: str, tag: str | None) -> tuple[bytes, str] | None:
        data, found = self.get(key)
        return None if found == tag else (data, found)

    def part(self, key: str, first: int, stop: int) -> bytes:
        self.act("part", key)
        data = self._object(key)[first:stop]
        self.got[key] += len(data)
        return data

    def put(self, key: str, data: bytes) -> None:
        self.act("put", key)
        self.objects[key] = data
        self.act("was put", key)

    def replace(self, key: str, data: bytes, tag: str | None) -> str:
        self.act("replace", key)
        found = self.objects.get(key)
        if (None if found is None else hashlib.sha256(found).hexdigest()) != tag:
            raise StoreTakenOver(f"{key} was written by another")
        self.objects[key] = data
        self.act("was replaced", key)
        return hashlib.sha256(data).hexdigest()

    def folders(self) -> list[str]:
        return sorted({key.split("/")[0] for key in self.objects if "/" in key})

    def remove(self, folder: str) -> None:
        for key in [key for key in self.objects if key.startswith(f"{folder}/")]:
            del self.objects[key]

    def _object(self, key: str) -> bytes:
        if key not in self.objects:
            raise MissingShard(f"{key} is not in {self.url}")
        return self.objects[key]
