"""A worker of either kind: of our own engine, or one that runs other people's programs.

What it is follows from the first line that it is sent, so that a backend starts both alike.
"""

from __future__ import annotations

import json
import sys

from paribus.engine.execution.workers.lifetime import adopt, children, end_children, leave


def main() -> int:
    """Return the exit code of the worker that the first line greets."""
    first = sys.stdin.readline()
    try:
        name = json.loads(first).get("message")
    except ValueError:  # whoever started us has left
        return 1
    if name == "HelloProgram":
        from paribus.programs.worker import main as work

        adopt()
        before = children()
        return work(first, lambda: end_children(before))
    from paribus.engine.execution.workers.worker import main as train

    return train(first)


if __name__ == "__main__":
    leave(main())
