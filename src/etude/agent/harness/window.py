"""The model's window, as a session of messages keeps to it: when to sum up, how much an answer and the tool results of a turn may take,
and how a conversation that the endpoint refuses becomes one that it takes.

For endpoints alone, whose window is known from their list of models, from the person, or from a refusal. A token policy's engine looks
after its own: nothing here changes what such a policy sees.
"""

from __future__ import annotations

from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.transcript import Transcript
from etude.agent.policy.protocol import ContextOverflow, Policy, window_of

# Of the window: filled to this share a session sums itself up (80k of 128k tokens), an answer takes this one at most, and a
# conversation that is too long is brought down to the third.
SUMMARY_SHARE, ANSWER_SHARE, FITTED_SHARE = 5 / 8, 1 / 8, 0.6
# Each refusal of a shortened conversation halves, at least, what was thought to fit.
MOST_REFUSALS = 6
# Bytes of code and logs in a token, at the low end.
BYTES_PER_TOKEN = 3
LEAST_RESULT_BYTES = 500
_LEAST_ANSWER_TOKENS = 256
_MARGIN_TOKENS = 64  # what came since the last count is estimated


class Window:
    """One session's. `exact`: its conversation is held as tokens too, so its messages stay as they are."""

    def __init__(self, policy: Policy, transcript: Transcript, settings: HarnessSettings, *, exact: bool) -> None:
        self._policy = policy
        self.exact = exact
        self._transcript = transcript
        self._settings = settings
        self._refusals = 0  # in a row

    @property
    def tokens(self) -> int | None:
        """Prompt and answer together; None where it is not known."""
        return None if self.exact else window_of(self._policy)

    @property
    def summary_tokens(self) -> int:
        """A segment of this many tokens is summed up; 0: never."""
        trigger = self._settings.summary_trigger_tokens
        return trigger if self.tokens is None else min(trigger, int(self.tokens * SUMMARY_SHARE))

    def answer_tokens(self, wanted: int) -> int:
        """The largest answer to ask for."""
        if self.tokens is None:
            return wanted
        room = self.tokens - self._transcript.segment_tokens - _MARGIN_TOKENS
        return min(wanted, max(_LEAST_ANSWER_TOKENS, room))

    def result_bytes(self, calls: int) -> int:
        """How much each of a turn's results may hold: together they leave room for an answer."""
        most = self._settings.max_tool_bytes
        if self.tokens is None:
            return most
        free = self.tokens * (1 - ANSWER_SHARE) - self._transcript.segment_tokens
        room = max(free, self.tokens * ANSWER_SHARE)
        return max(min(most, LEAST_RESULT_BYTES), min(most, int(room * BYTES_PER_TOKEN / 2 / max(1, calls))))

    def make_room(self) -> None:
        """Before a request: a conversation that is known to be too long is shortened first."""
        if self.tokens is not None and self._transcript.segment_tokens > self.tokens - self._reserve():
            self._transcript.shorten(int(self.tokens * FITTED_SHARE), {"window": self.tokens})

    def refused(self, overflow: ContextOverflow) -> bool:
        """Shorten a conversation that the endpoint refuses; whether it is shorter now."""
        if self.exact:
            return False
        self._refusals += 1
        if overflow.prompt_tokens is not None:
            self._transcript.measured(overflow.prompt_tokens)
        else:  # it holds more than the window, and some endpoints report too little
            self._transcript.measured(max(self.tokens or 0, self._transcript.estimated_tokens))
        most = min(self.tokens or self._transcript.segment_tokens, self._transcript.segment_tokens)
        facts = {"window": self.tokens, "prompt": overflow.prompt_tokens, "refused": True}
        halvings = min(self._refusals, MOST_REFUSALS) - 1
        shorter = self._transcript.shorten(int(most * FITTED_SHARE * 0.5**halvings), facts)
        return shorter and self._refusals <= MOST_REFUSALS

    def taken(self) -> None:
        """The endpoint took a request."""
        self._refusals = 0

    def _reserve(self) -> int:
        assert self.tokens is not None
        return min(self._settings.max_tokens_per_turn, int(self.tokens * ANSWER_SHARE))
