"""What a command line is for; a line that a model repeats without end is read in time that grows with its length alone."""

from __future__ import annotations

import pytest

from etude.agent.metrics.counters import hides_status, runs_tests, tool_instead


@pytest.mark.parametrize("line", ["make unit test", "make check", "gradlew clean test", "mvn clean install test"])
def test_test_commands_are_known(line: str) -> None:
    assert runs_tests(line)


@pytest.mark.parametrize("words", ["make a ", "mvn a ", "gradle a ", "cd a && ", "A=b "])
def test_a_line_without_end_is_no_test_command(words: str) -> None:
    line = words * 50_000
    assert not runs_tests(line) and not hides_status(line) and tool_instead(line) == ""
