"""The command line in a process of its own, with checkpoints at every step.

The verb `train STUDY STACK` is `run` without the report.
"""

from __future__ import annotations

import sys

from paribus.runs.run import run


def main(arguments: list[str]) -> int:
    run.__kwdefaults__["checkpoint_seconds"] = 0.0
    if arguments[0] != "train":
        from paribus.cli import main as cli

        return cli(arguments)
    from paribus import ParibusError, load_study

    try:
        run(load_study(arguments[1]), "r", workers=1, device="cpu", stack=int(arguments[2]))
    except ParibusError as error:
        print(f"paribus: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
