"""`python -m paribus`."""

import sys

from paribus.cli import main

if __name__ == "__main__":
    sys.exit(main())
