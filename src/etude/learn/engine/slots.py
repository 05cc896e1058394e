"""Which session has which cache slot, and which prompts are cached where. Pure.

Sessions keep their slot until another needs it (least recently used first), so that a later turn finds its tokens still cached. Rollouts of one
task start with the same prompt, and all sessions with the same instructions: the first one computes it, the others copy its keys and values, bit
for bit what they would compute. Only prompts computed under the current weights are listed: a swap clears the table, else old keys
would survive in new sessions.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict


class SlotTable:
    """A slot is free, idle (keeps a session's tokens, no request runs) or busy."""

    def __init__(self, slots: int) -> None:
        self._free = list(
            range(slots)
        )  # a heap: low slots first keeps busy ones together, which attention reads faster
        self._idle: OrderedDict[int, str] = OrderedDict()  # least recently used first
        self._busy: dict[int, str] = {}
        self._slot: dict[str, int] = {}
        self._leaving: set[str] = set()
        self.evictions = 0

    @property
    def busy(self) -> int:
        return len(self._busy)

    @property
    def idle(self) -> dict[int, str]:
        """Idle slots and their sessions."""
        return dict(self._idle)

    def slot_of(self, session: str) -> int | None:
        return self._slot.get(session)

    def take(self, session: str) -> tuple[int, bool] | None:
        """A slot for a request of `session`, and whether it still holds the session's tokens.

        None if every slot is busy, or the session's own slot is.
        """
        slot = self._slot.get(session)
        if slot is not None:
            if slot in self._busy:
                return None
            del self._idle[slot]
            self._busy[slot] = session
            return slot, True
        if self._free:
            slot = heapq.heappop(self._free)
        elif self._idle:
            slot, evicted = self._idle.popitem(last=False)
            del self._slot[evicted]
            self.evictions += 1
        else:
            return None
        self._busy[slot] = session
        self._slot[session] = slot
        return slot, False

    def park(self, slot: int) -> None:
        """The slot's request is over; its session may come back."""
        session = self._busy.pop(slot)
        self._idle[slot] = session
        if session in self._leaving:
            self.release(session)

    def release(self, session: str) -> None:
        """The session will not continue: its slot is free, at once or when its request is over. Unknown ones are ignored."""
        slot = self._slot.get(session)
        if slot is None:
            return
        if slot in self._busy:
            self._leaving.add(session)
            return
        del self._idle[slot], self._slot[session]
        self._leaving.discard(session)
        heapq.heappush(self._free, slot)


# Below this many tokens the copy costs as much as computing them with the rest of the prompt.
MIN_SHARED = 16


class PrefixTable:
    """Slots by their prompt, whole and by its first MIN_SHARED tokens."""

    def __init__(self) -> None:
        self._slot: dict[tuple[int, ...], int] = {}
        self._keys: dict[int, list[tuple[int, ...]]] = {}

    def add(self, slot: int, prompt: tuple[int, ...]) -> None:
        """The slot's cache begins, or will begin, with `prompt`. Who is listed for it already stays: the listed one has
        it computed, and others may be about to copy from there."""
        self.forget(slot)
        if len(prompt) > MIN_SHARED:
            self._keys[slot] = [key for key in (prompt, prompt[:MIN_SHARED]) if key not in self._slot]
            self._slot.update((key, slot) for key in self._keys[slot])

    def find(self, prompt: tuple[int, ...]) -> int | None:
        """A slot whose cache starts with at least MIN_SHARED tokens of `prompt`, preferably with all of it."""
        if len(prompt) <= MIN_SHARED:
            return None
        whole = self._slot.get(prompt)
        return self._slot.get(prompt[:MIN_SHARED]) if whole is None else whole

    def forget(self, slot: int) -> None:
        """The slot's tokens change."""
        for key in self._keys.pop(slot, []):
            del self._slot[key]

    def clear(self) -> None:
        self._slot.clear()
        self._keys.clear()
