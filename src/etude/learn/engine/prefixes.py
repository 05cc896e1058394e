"""Where a prompt's beginning is already cached. Rollouts of one task start with the same prompt, and all sessions with the
same instructions: the first computes it, the others copy its keys and values (bit for bit what they would compute). Pure.

Only prompts computed under the current weights are listed: a swap clears the table, else old keys would live on for ever
in new sessions."""

from __future__ import annotations

# Below this many tokens the copy costs as much as computing them beside the rest of the prompt.
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
