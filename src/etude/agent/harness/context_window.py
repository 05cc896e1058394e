"""Keeps a session of messages within the model's context window: when to summarize, how large an answer and tool results may be, and how
to shorten a conversation that the endpoint refuses.

Only for endpoints, whose window is known from their list of models, from the user, or from a refusal. Token policies have an engine that
keeps its own limit, and nothing here changes what such a policy sees.
"""

from __future__ import annotations

from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.transcript import Transcript
from etude.agent.policy.protocol import ContextOverflow, Policy, window_of

# Shares of the window: a session summarizes at the first (80k of 128k tokens), the second limits an answer, and a conversation that is
# too long is shortened to the third.
SUMMARY_SHARE, ANSWER_SHARE, FITTED_SHARE = 5 / 8, 1 / 8, 0.6
# Refusals in a row before giving up. Each one halves the size to which the conversation is shortened.
MAX_REFUSALS = 6
# Bytes of code and logs in a token, at the low end.
BYTES_PER_TOKEN = 3
MIN_RESULT_BYTES = 500
_MIN_ANSWER_TOKENS = 256
_MARGIN_TOKENS = 64  # messages since the last count are only estimated


class ContextWindow:
    """The context window of one session. `exact`: the conversation is also held as tokens, so its messages are never shortened."""

    def __init__(self, policy: Policy, transcript: Transcript, settings: HarnessSettings, *, exact: bool) -> None:
        self._policy = policy
        self.exact = exact
        self._transcript = transcript
        self._settings = settings
        self._refusals = 0  # in a row

    @property
    def tokens(self) -> int | None:
        """The window's size, for prompt and answer together; None if it is unknown."""
        return None if self.exact else window_of(self._policy)

    @property
    def summary_tokens(self) -> int:
        """A segment of this many tokens is summarized; 0: never."""
        trigger = self._settings.summary_trigger_tokens
        return trigger if self.tokens is None else min(trigger, int(self.tokens * SUMMARY_SHARE))

    def answer_tokens(self, wanted: int) -> int:
        """The limit of the next answer."""
        if self.tokens is None:
            return wanted
        room = self.tokens - self._transcript.segment_tokens - _MARGIN_TOKENS
        return min(wanted, max(_MIN_ANSWER_TOKENS, room))

    def result_bytes(self, calls: int) -> int:
        """Limit of each tool result of a turn. Together the results leave room for an answer."""
        most = self._settings.max_tool_bytes
        if self.tokens is None:
            return most
        free = self.tokens * (1 - ANSWER_SHARE) - self._transcript.segment_tokens
        room = max(free, self.tokens * ANSWER_SHARE)
        return max(min(most, MIN_RESULT_BYTES), min(most, int(room * BYTES_PER_TOKEN / 2 / max(1, calls))))

    def make_room(self) -> None:
        """Shorten a conversation that is known to be too long, before a request."""
        if self.tokens is not None and self._transcript.segment_tokens > self.tokens - self._reserve():
            self._transcript.shorten(int(self.tokens * FITTED_SHARE), {"window": self.tokens})

    def shorten_refused(self, overflow: ContextOverflow) -> bool:
        """Shorten a conversation that the endpoint refused, and return whether it is shorter now."""
        if self.exact:
            return False
        self._refusals += 1
        if overflow.prompt_tokens is not None:
            self._transcript.take_token_count(overflow.prompt_tokens)
        else:  # the conversation exceeds the window, and some endpoints report too few tokens
            self._transcript.take_token_count(max(self.tokens or 0, self._transcript.estimated_tokens))
        most = min(self.tokens or self._transcript.segment_tokens, self._transcript.segment_tokens)
        facts = {"window": self.tokens, "prompt": overflow.prompt_tokens, "refused": True}
        halvings = min(self._refusals, MAX_REFUSALS) - 1
        shorter = self._transcript.shorten(int(most * FITTED_SHARE * 0.5**halvings), facts)
        return shorter and self._refusals <= MAX_REFUSALS

    def on_accepted(self) -> None:
        """The endpoint accepted a request."""
        self._refusals = 0

    def _reserve(self) -> int:
        assert self.tokens is not None
        return min(self._settings.max_tokens_per_turn, int(self.tokens * ANSWER_SHARE))
