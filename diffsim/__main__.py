"""`python -m diffsim`."""

import os
import sys

from diffsim.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    code = main()
    if code == 130:
        os._exit(code)  # XLA's threads are still at work after an interrupt: an ordinary exit can crash in them
    sys.exit(code)
