"""Targeted evals: small suites, each for one behaviour, decided by the log and the files; a rubric where these cannot say."""
