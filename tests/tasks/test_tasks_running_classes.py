"""How runners of classes get the files to run."""

from __future__ import annotations

from etude.tasks.running.channel import Tests
from etude.tasks.running.channels.appended import CHANNELS

FILES = {
    "src/test/java/org/a/ATest.java": b"/* of a */\npackage org.a;\n\npublic class ATest {}\n",
    "src/test/java/org/b/ATest.java": b"package org.b ;\nclass ATest {}\n",
    "ATest.java": b"class ATest {} // package of.none\n",
}


def argv(*command: str) -> list[str]:
    return CHANNELS["junit"].prepare(Tests(tuple(FILES), command, "junit"), FILES, "n0", "/work").argv


def test_a_class_is_named_with_its_package_so_that_two_of_one_name_are_two():
    assert argv("java", "Runner", "{files}") == ["java", "Runner", "org.a.ATest", "org.b.ATest", "ATest"]


def test_maven_gets_them_in_one_word():
    assert argv()[-1] == "-Dtest=org.a.ATest,org.b.ATest,ATest"
