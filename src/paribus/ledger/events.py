"""What a ledger records: registrations, openings of held-out text, looks and verdicts.

A text is told by digest, never by a path: of the part that is held out, and of the corpus that it
was cut from, with its place there in bytes. So a split at another place of the same corpus is seen
to have bytes in common.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from paribus.errors import ParibusError
from paribus.metric import Line, Words

SCHEMA = 1
Role = Literal["validation", "test"]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Place = Annotated[int, Field(ge=0, lt=2**63)]
Count = Annotated[int, Field(ge=0, lt=2**31)]


def _instant(text: str) -> str:
    """Return a time that says its zone, in UTC. Raises ValueError."""
    when = datetime.fromisoformat(text)
    if when.utcoffset() is None or when.utcoffset():
        raise ValueError(f"{text!r:.40} is no time in UTC, such as 2026-11-22T15:30:30+00:00")
    return text


Time = Annotated[str, AfterValidator(_instant)]


class Written(BaseModel):
    """Base of all that is in a line. Keys that are not known are kept: a later paribus has more."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)


class TextPart(Written):
    """A part of a text that is held out of training.

    Attributes:
        digest: SHA-256 of its text.
        corpus: of the text that it is cut from; its own where it is a file by itself; empty where
            that is not known.
        form: what was done to the corpus before it was cut: `exact` or `near` deduplication, by
            which its places are others; empty for nothing.
        start, stop: its place in the corpus, in bytes; a stop of None is the end of the corpus, a
            start of None is not known.
    """

    role: Role
    digest: Digest
    corpus: Literal[""] | Digest = ""
    form: Line = ""
    start: Place | None = None
    stop: Place | None = None


class Event(Written):
    """Something that happened to a study.

    Attributes:
        registration: SHA-256 of its first registration.json, which no two studies share: run or
            reported again, it is the same study.
    """

    schema_version: Annotated[int, Field(ge=1)] = SCHEMA
    time: Time
    study: Words
    registration: Digest

    @property
    def key(self) -> tuple[str, ...]:
        """What a ledger has once of each study."""
        return (self.registration, self.__class__.__name__)


class Registered(Event):
    """A study was registered: the text that it holds out, and the primary tests it will make.

    Of runs that other programs make it has a digest of what it is about, their files and the score
    that decides (`subject`), and the margin.
    """

    kind: Literal["registration"] = "registration"
    study_digest: Line = ""
    texts: tuple[TextPart, ...] = ()
    tests: Count = 0
    subject: Line = ""
    margin: float | None = None


class Opened(Event):
    """Scores on a held-out text were about to be seen.

    Of validation text before the first trial, of a test part when the verdict asked for it. `tests`
    are the primary tests that the study makes on it: none on validation text where a test part is
    sealed.
    """

    kind: Literal["opening"] = "opening"
    text: TextPart
    tests: Count = 0

    @property
    def key(self) -> tuple[str, ...]:
        """One of each text."""
        return (*super().key, self.text.role, self.text.digest)


class Looked(Event):
    """An interim look was taken."""

    kind: Literal["look"] = "look"
    look: Annotated[int, Field(ge=1)]

    @property
    def key(self) -> tuple[str, ...]:
        """Each look."""
        return (*super().key, str(self.look))


class Decided(Event):
    """A verdict was given: words by metric and arm.

    Of a verdict from before there were words, the outcome of its rule.
    """

    kind: Literal["verdict"] = "verdict"
    words: dict[Line, dict[Line, Line]] = {}


LATER = ("subject", "margin")
CAUSES = ("registration", "opening", "look", "verdict")


def rank(entry: dict[str, Any]) -> int:
    """Return the place of an entry among those of one study and second: what it follows from comes
    before it, and a test part is opened after the looks."""
    is_test = entry.get("kind") == "opening" and entry.get("text", {}).get("role") == "test"
    kind = entry.get("kind")
    return 2 * CAUSES.index(kind if kind in CAUSES else "verdict") + 3 * is_test


_Any = Registered | Opened | Looked | Decided
_ANY: TypeAdapter[_Any] = TypeAdapter(Annotated[_Any, Field(discriminator="kind")])


def read(entry: dict[str, Any], where: str) -> Event:
    """Return an entry as what it records. Raises ParibusError, also for one of a later schema."""
    schema = entry.get("schema_version")
    if isinstance(schema, int) and schema > SCHEMA:
        raise ParibusError(
            f"{where} has schema {schema}, and this paribus reads up to {SCHEMA}; read it with a "
            "newer one"
        )
    try:
        return _ANY.validate_python(entry)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise ParibusError(f"{where} is no entry of a ledger: {key}: {first['msg']}") from None


def plain(event: Event) -> dict[str, Any]:
    """Return an event as its line has it: keys that earlier lines have not only where they say
    something."""
    said = event.model_dump(mode="json")
    return {key: of for key, of in said.items() if key not in LATER or of not in ("", None)}
