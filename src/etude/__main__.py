"""`python -m etude`: the command `etude`."""

from etude.cli.main import main

main()
