"""The command line in a process of its own, with checkpoints at every step."""

from __future__ import annotations

import sys

from paribus.runs.run import run

if __name__ == "__main__":
    run.__kwdefaults__["checkpoint_seconds"] = 0.0
    from paribus.cli import main

    sys.exit(main(sys.argv[1:]))
