"""The command line: each command parses its options, calls the library and prints the result."""

from .app import main as main
