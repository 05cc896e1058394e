"""A command known by its exit status alone, under the one name `command`: believed if it fails where a test must fail.

Where the chosen test files can hold a canary it is run twice, without and with: what exits early with success exits so both times.
"""

from __future__ import annotations

from collections.abc import Mapping

from etude.tasks.running.channels.canaries import with_canary
from etude.tasks.running.channels.channel import Answer, Heard, Prepared, Tests, filled
from etude.tasks.running.report import TestRun

WHOLE = "command"


class ExitChannel:
    def prepare(self, tests: Tests, files: Mapping[str, bytes], nonce: str, workdir: str) -> Prepared:
        return Prepared(filled(tests.command, list(tests.files)))

    def control(self, tests: Tests, files: Mapping[str, bytes], nonce: str) -> dict[str, bytes]:
        """Test files whose run must fail; empty where none can hold a canary."""
        found: dict[str, bytes] = {}
        for path in tests.files:
            if path in files:
                text = with_canary(path, files[path].decode("utf-8", "replace"), nonce, "exit")
                found |= {} if text is None else {path: text.encode()}
        return found

    def hear(self, answer: Answer, prepared: Prepared, workdir: str) -> Heard:
        whole = frozenset((WHOLE,))
        good = answer.rc == 0
        return Heard(TestRun(whole if good else frozenset(), frozenset() if good else whole, answer.rc, answer.seconds))
