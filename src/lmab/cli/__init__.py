"""The command line: each command parses, calls the library, prints."""

from .app import main as main
