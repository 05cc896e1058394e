"""Judged scores: rubrics, judges of one criterion a call, an agentic grader, and how far each agrees with hand labels."""
