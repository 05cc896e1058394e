"""Which files of a project are worth learning from, and why the others are not: by name and size before anything is read, then by content."""

from etude.corpus.judge.judging import judge
from etude.corpus.judge.names import judge_name
from etude.corpus.judge.verdict import Kept, Limits, Refusal

__all__ = ["Kept", "Limits", "Refusal", "judge", "judge_name"]
