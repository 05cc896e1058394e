"""What is bound read-only into a sandbox to run tests: standard library alone, any Python from 3.8 on; never imported out here."""
