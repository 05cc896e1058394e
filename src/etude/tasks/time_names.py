"""Names of tests that hold the time: under another clock the same test has another name, so no list of names holds for long.

Found are dates and times of day near the moment of the proof, seconds, milliseconds and microseconds since 1970, and counts of a period
since then (`int(time.time() // 240)`). A date that lies elsewhere (`test_parse[2020-01-31]`) is a parameter like any other.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

NEAR_S = 3 * 86_400  # zones, and proofs that take long
PROOF_S = 1800  # from the first run of a proof to its end
# Periods that people count in.
_PERIODS_S = frozenset(
    (2, 5, 10, 15, 20, 30, *range(60, 3601, 60), 7200, 10_800, 14_400, 21_600, 28_800, 43_200, 86_400, 604_800)
)
_NUMBER = re.compile(r"(?<![\d.])\d{3,19}(?![\d])")
_CLOCK = re.compile(r"(?<!\d)([01]\d|2[0-3])[:.h]([0-5]\d)[:.m]([0-5]\d)(?!\d)")
_DATES = (
    (re.compile(r"(?<!\d)(\d{4})[-/._]?(\d{2})[-/._]?(\d{2})(?!\d)"), (0, 1, 2)),  # 2026-11-25, 20261125
    (re.compile(r"(?<!\d)(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})(?!\d)"), (2, 0, 1)),  # 11-25-2026
    (re.compile(r"(?<!\d)(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})(?!\d)"), (2, 1, 0)),  # 25.11.2026
)


def names_time(name: str, now_s: float) -> bool:
    """Whether a test's name holds a moment near `now_s`, seconds since 1970."""
    parameters = name.partition("[")[2] or name
    return _holds_date(parameters, now_s) or any(_is_moment(int(word), now_s) for word in _NUMBER.findall(parameters))


def _holds_date(text: str, now_s: float) -> bool:
    today = datetime.fromtimestamp(now_s, UTC)
    for pattern, (year, month, day) in _DATES:
        for found in pattern.findall(text):
            try:
                date = datetime(int(found[year]), int(found[month]), int(found[day]), tzinfo=UTC)
            except ValueError:
                continue
            if abs(date - today) <= timedelta(seconds=NEAR_S):
                return True
    seconds = [(int(h) * 60 + int(m)) * 60 + int(s) for h, m, s in _CLOCK.findall(text)]
    return any((now_s - one) % 86_400 <= PROOF_S for one in seconds)


def _is_moment(number: int, now_s: float) -> bool:
    if any(abs(number / unit - now_s) <= NEAR_S for unit in (1, 1_000, 1_000_000, 1_000_000_000)):
        return True
    return any(number in (int(now_s // period), int((now_s - PROOF_S) // period)) for period in _PERIODS_S)
