"""A command known by its exit status alone, under the one name `command`: believed if it fails where a test must fail.

Where the chosen test files can hold a canary it is run twice, without and with: what exits early with success exits so both times.
"""

from __future__ import annotations

from collections.abc import Mapping

from etude.tasks.running.channel import ParentReport, Prepared, Tests, VerifiedRun, fill_command
from etude.tasks.running.channels.canaries import with_failure, with_guard
from etude.tasks.running.report import TestRun

WHOLE = "command"


class ExitChannel:
    def prepare(self, tests: Tests, files: Mapping[str, bytes], nonce: str, workdir: str) -> Prepared:
        guarded = {path: with_guard(path, _text(files[path]), nonce) for path in tests.files if path in files}
        planted = {path: text.encode() for path, text in guarded.items() if text is not None}
        return Prepared(fill_command(tests.command, list(tests.files)), planted)

    def control(self, tests: Tests, files: Mapping[str, bytes], nonce: str) -> dict[str, bytes]:
        """Test files whose run must fail; empty where none can hold a canary."""
        found: dict[str, bytes] = {}
        for path in tests.files:
            if path in files:
                text = with_failure(path, _text(files[path]), nonce)
                found |= {} if text is None else {path: text.encode()}
        return found

    def hear(self, answer: ParentReport, prepared: Prepared, workdir: str) -> VerifiedRun:
        whole = frozenset((WHOLE,))
        good = answer.rc == 0
        return VerifiedRun(
            TestRun(whole if good else frozenset(), frozenset() if good else whole, answer.rc, answer.seconds)
        )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
