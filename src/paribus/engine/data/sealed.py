"""The test part: sealed by its digest, and read once, for a purpose that stands on the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn, Protocol

from paribus.engine.data.tokens import Tokens
from paribus.errors import ParibusError


@dataclass(frozen=True)
class SealedPart:
    """Text that nothing is read of: not trained on, evaluated on, described or asked about.

    Attributes:
        digest: SHA-256 of its text.
        n_bytes, n_documents: UTF-8 bytes and documents; all else that is known of it.
    """

    digest: str
    n_bytes: int
    n_documents: int
    _open: Callable[[], Tokens] = field(repr=False, compare=False)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise ParibusError(
            "the test part is sealed until the verdict asks for it; it is opened, once and on the "
            "record, with paribus.engine.data.open_test"
        )

    __getitem__ = __len__ = __iter__ = __array__ = _refuse


class OpeningRecord(Protocol):
    """Where it stands whether the test part was read: a `paribus.results.ResultsFolder`."""

    @property
    def path(self) -> Path:
        """How the record is named in messages."""
        ...

    def read_opened(self) -> Mapping[str, str] | None:
        """What was written; None where nothing was. Raises ParibusError where that is unknown."""
        ...

    def write_opened(self, opened: Mapping[str, str]) -> None:
        """Write it, so that no later change of it goes unnoticed."""
        ...


def open_test(test: SealedPart | None, record: OpeningRecord, purpose: str) -> Tokens:
    """The tokens of the test part, after `record` says when and for what `purpose` it was opened.

    A results folder is such a record, and seals it. The same purpose may be gone on with after an
    interruption; another one is refused, since what is decided twice on one text is not decided on
    fresh text. Raises ParibusError, also for a study without a test part and for another text than
    was opened.
    """
    if test is None:
        raise ParibusError(
            "the study has no test part; seal one with data.test_fraction or data.test_path"
        )
    found = record.read_opened()
    if found is None:
        opened = datetime.now(UTC).isoformat(timespec="seconds")
        record.write_opened({"purpose": purpose, "digest": test.digest, "opened": opened})
        return test._open()
    if found["purpose"] != purpose:
        raise ParibusError(
            f"the test part was opened already, for '{found['purpose']}' ({record.path}); for "
            f"'{purpose}' it is no longer fresh: seal other text"
        )
    if found["digest"] != test.digest:
        raise ParibusError(
            f"{record.path} is of a test part with SHA-256 {found['digest'][:12]}..., and this "
            f"one has {test.digest[:12]}...; restore the text"
        )
    return test._open()
