"""`python -m mutants`: see `mutants.hunt`."""

from __future__ import annotations

import sys

from .hunt import main

if __name__ == "__main__":
    sys.exit(main())
