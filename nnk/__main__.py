"""``python -m nnk``: the command line."""

import sys

from nnk.cli import main

if __name__ == "__main__":
    sys.exit(main())
