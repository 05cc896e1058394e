"""`etude session collect`: rejection sampling with any teacher; sessions that passed, in the harness' own format, for SFT."""
