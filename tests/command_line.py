"""The command line in this process, which spares its start."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

from paribus.cli import main


def verb(*arguments: object) -> tuple[int, str, str]:
    """Return the exit code, standard output and standard error of a command."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main([*map(str, arguments)])
    return code, out.getvalue(), err.getvalue()
