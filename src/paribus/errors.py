"""Exception for errors that users can fix, and helper functions for error messages."""

from __future__ import annotations

import difflib
import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

from paribus.numbers import some

LONGEST_MESSAGE = 960  # in characters
LONGEST_NAME = 200  # that is compared with known names
MOST_KNOWN = 8  # names that an error lists
MOST_MEANT = 3

# The kind of mistake that an error is about. Tests and programs compare codes; the text is for
# people and may change.
Code = Literal[
    "ambiguous",  # a question that only the user can answer
    "changed",  # a record that is not the one that was sealed or registered
    "conflict",  # two settings that cannot both hold
    "different",  # a folder or ledger that belongs to something else
    "exists",  # a file or folder that would be overwritten
    "in_use",  # a folder that another command is working on
    "incomparable",  # scores or arms that do not measure the same thing
    "missing",  # a file, folder, key or column that is needed
    "not_installed",  # a package or program that is needed
    "own_code",  # the user's own code failed or returned something else
    "system",  # the operating system, the network or a scheduler refused
    "too_few",  # too few runs, seeds or items
    "unfinished",  # a trial or study that has not ended yet
    "unknown",  # a name that is not known
    "unreadable",  # a file whose content cannot be read
    "unsupported",  # a combination that does not work together
    "untrusted",  # code from somebody else that was not released with --trust
    "value",  # a value that breaks a rule
]


class ParibusError(Exception):
    """Error that the user can fix. The message states the invalid value, the rule and the fix.

    The message is a single line. The command line prints it and exits with code 2.

    Attributes:
        code: category of the error, one of `Code`.
    """

    def __init__(self, message: str, *, code: Code = "value") -> None:
        super().__init__(one_line(message))
        self.code = code


@contextmanager
def blamed(action: str, advice: str = "") -> Iterator[None]:
    """Convert exceptions raised by custom code in the `with` block to ParibusError.

    The message has the form `action: TypeError: text; advice`. Out-of-memory errors are re-raised
    unchanged.
    """
    try:
        yield
    except (ParibusError, MemoryError):
        raise
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":  # PyTorch's, which few import
            raise
        ending = f"; {advice}" if advice else ""
        message = f"{action}: {type(error).__name__}: {error}{ending}"
        raise ParibusError(message, code="own_code") from error


def print_any_character() -> None:
    """Configure stdout and stderr to escape unencodable characters, such as `\\xe4`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def one_line(text: str, limit: int = LONGEST_MESSAGE) -> str:
    """Convert text to one line of bounded length, escaping nonprintable characters.

    Messages may quote untrusted files, so terminal escape sequences must not be printed, and long
    values must not hide the rest of the message. Text longer than `limit` characters is shortened
    in the middle.
    """
    words = " ".join(text.split())
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words)
    if len(safe) <= limit:
        return safe
    half = limit // 2
    return f"{safe[:half]}...({len(safe) - 2 * half:,} more)...{safe[-half:]}"


def nearest(name: str, known: Iterable[str], limit: int = MOST_KNOWN) -> str:
    """Suggest known names in place of an unknown `name`, as text for an error message.

    The suggestion is up to MOST_MEANT names that contain `name`, shortest first; otherwise the
    closest match; otherwise the first `limit` names.
    """
    names = sorted(set(known))
    meant = sorted((option for option in names if name and name in option), key=len)[:MOST_MEANT]
    # difflib takes quadratic time, and a name that long is nobody's typing error.
    meant = meant or difflib.get_close_matches(name[:LONGEST_NAME], names, n=1, cutoff=0.6)
    if meant:
        return f"did you mean {' or '.join(map(repr, meant))}?"
    if not names:
        return "no names are defined"
    return f"choose from {some(names, limit)}"


def require_positive(**stated: int | None) -> None:
    """Raise ParibusError if a keyword argument is less than 1. None is allowed."""
    for name, value in stated.items():
        if value is not None and value < 1:
            raise ParibusError(f"{name} = {value} must be at least 1")
