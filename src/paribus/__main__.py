"""The command `paribus`, and `python -m paribus`."""

import sys


def main() -> int:
    """Run the command line and return the exit code. Ctrl-C is handled during imports too."""
    try:
        from paribus.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("paribus: interrupted; run the same command again to continue", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
