"""Threads for what is independent: shards, tensors. numpy, zstd and the hashes leave the interpreter lock while they work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Workers:
    """`count` threads, or with one none at all: the caller's own. The first error stops what has not begun."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"{count} workers; give at least 1")
        self._pool = ThreadPoolExecutor(count, "weights") if count > 1 else None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """The results in the order of the items. Raises the first error met."""
        return map(work, items) if self._pool is None else self._pool.map(work, items)
