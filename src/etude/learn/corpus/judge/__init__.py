"""Which files of a project are worth learning from, and why the others are not: by name and size before anything is read, then by content."""

from etude.learn.corpus.judge.judging import judge
from etude.learn.corpus.judge.names import judge_name
from etude.learn.corpus.judge.verdict import AcceptedFile, FileLimits, FileRefusal

__all__ = ["AcceptedFile", "FileLimits", "FileRefusal", "judge", "judge_name"]
