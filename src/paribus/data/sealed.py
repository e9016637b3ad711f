"""The test part: sealed by its digest, and read once, for a purpose that stands on the record."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from paribus.data.tokens import Tokens
from paribus.digests import canonical_json
from paribus.errors import ParibusError
from paribus.files import write_bytes


@dataclass(frozen=True)
class SealedPart:
    """Text that nothing is read of: not trained on, evaluated on, described or asked about.

    Attributes:
        digest: SHA-256 of its text.
    """

    digest: str
    _open: Callable[[], Tokens] = field(repr=False, compare=False)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise ParibusError(
            "the test part is sealed until the verdict asks for it; it is opened, once and on the "
            "record, with paribus.data.open_test"
        )

    __getitem__ = __len__ = __iter__ = __array__ = _refuse


def open_test(test: SealedPart | None, record: Path, purpose: str) -> Tokens:
    """The tokens of the test part, after `record` says when and for what `purpose` it was opened.

    The record is a JSON file; a results folder has it as test_part.json. The same purpose may be
    gone on with after an interruption; another one is refused, since what is decided twice on one
    text is not decided on fresh text. Raises ParibusError, also for a study without a test part and
    for another text than was opened.
    """
    if test is None:
        raise ParibusError(
            "the study has no test part; seal one with data.test_fraction or data.test_path"
        )
    about = {"purpose": purpose, "digest": test.digest}
    try:
        found: dict[str, Any] = json.loads(record.read_bytes())
    except FileNotFoundError:
        opened = datetime.now(UTC).isoformat(timespec="seconds")
        write_bytes(record, canonical_json(about | {"opened": opened}).encode())
        return test._open()
    except (OSError, ValueError) as error:
        raise ParibusError(
            f"{record} cannot be read ({error}), so whether the test part was opened is not known; "
            "restore it"
        ) from None
    if not isinstance(found, dict) or found.get("purpose") != purpose:
        known = found.get("purpose") if isinstance(found, dict) else found
        raise ParibusError(
            f"the test part was opened already, for '{known}' ({record}); for '{purpose}' it is no "
            "longer fresh: seal other text"
        )
    if found.get("digest") != test.digest:
        raise ParibusError(
            f"{record} is of a test part with SHA-256 {str(found.get('digest'))[:12]}..., and this "
            f"one has {test.digest[:12]}...; restore the text"
        )
    return test._open()
