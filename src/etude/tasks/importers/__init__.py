"""Tasks of other formats: SWE-bench rows, Harbor and Terminal-Bench directories."""
