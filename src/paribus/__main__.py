"""Entry point of `paribus` and `python -m paribus`."""

import gc
import sys

# Objects between two collections of cycles: each goes over every module imported so far, and those
# after the usual 700 take a tenth of a short command.
COLLECT_AFTER = 200_000


def main() -> int:
    """Run the command line and return the exit code, handling Ctrl-C even during imports."""
    gc.set_threshold(COLLECT_AFTER)
    try:
        from paribus.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("paribus: interrupted; run the same command again to continue", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
