"""The command `paribus`, and `python -m paribus`."""

import sys


def main() -> int:
    """Run the command line; returns the exit code. Ctrl-C while it is imported is told too."""
    try:
        from paribus.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("paribus: interrupted; run the same command again to continue", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
