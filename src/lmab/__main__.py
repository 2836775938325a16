"""`python -m lmab` is the command `lmab`."""

from .cli.app import main

main()
