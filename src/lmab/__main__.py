"""`python -m lmab` is the command `lmab`."""

from .cli import main

main()
