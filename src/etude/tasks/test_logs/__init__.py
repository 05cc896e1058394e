"""Logs of test runners, read as the SWE-bench family reads them: one reader a name of the rows' `log_parser`."""
