"""Which harness ran: its version, and a digest of the files that were installed."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import metadata
from typing import Any

from paribus.engine.tasks import WrittenSuite
from paribus.errors import ParibusError

PACKAGE = "lm_eval"


def package_pins() -> dict[str, Any]:
    """What the record says of the harness.

    The harness's own `git_hash` is that of the working folder and says nothing of the harness.
    """
    return {
        "package": PACKAGE,
        "version": _distribution().version,
        "installed_sha256": installed_digest(),
    }


def harness_pins(suite: WrittenSuite) -> dict[str, Any]:
    """What the record says of the harness and of the tasks of `suite` that it ran."""
    return package_pins() | {
        "suite_sha256": suite.digest,
        "tasks": {
            name: {"version": task.version, "chance": task.chance, "sha256": task.files}
            for name, task in suite.tasks.items()
        },
    }


@cache
def installed_digest() -> str:
    """SHA-256 of the package's own lines of its RECORD: path and digest of every file installed.

    Lines of the installer (compiled files, scripts, `.dist-info`) differ between machines and are
    left out.
    """
    lines = sorted(
        f"{file.as_posix()},{file.hash.mode}={file.hash.value}"
        for file in _distribution().files or ()
        if file.hash and file.parts[0] == PACKAGE and file.suffix != ".pyc"
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _distribution() -> metadata.Distribution:
    try:
        return metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise ParibusError(
            f"the package '{PACKAGE}' is not installed, and tasks run through it; "
            "install paribus again with its dependencies"
        ) from None
