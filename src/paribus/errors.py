"""The one kind of error that a user is meant to read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ParibusError(Exception):
    """Something the user can put right; its text names the value, the rule and the way out.

    The text is a single line: the command line prints it as it is and exits with code 2.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def nearest(name: str, known: Iterable[str]) -> str:
    """A suggestion to append to an error about an unknown `name`.

    Gives the nearest known name where one is near, else the known names themselves.
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(names)}" if names else "none is known"
