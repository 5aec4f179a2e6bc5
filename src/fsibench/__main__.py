"""`python -m fsibench`."""

import sys

from fsibench.cli import main

if __name__ == "__main__":
    sys.exit(main())
