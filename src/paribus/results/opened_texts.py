"""Ledger entries for a study's held-out texts, and lookup of their earlier uses.

The ledger is a log, shared by all studies, of which held-out texts were used. Its events are
derived from the results folder (`events_of`). Earlier uses of a test text are saved in the folder
as `ledger.json`, so that a verdict can be reproduced without the ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError
from paribus.files import file_digest
from paribus.ledger import (
    IS_RECORDING,
    VARIABLE,
    Event,
    TextPart,
    appending,
    ledger_path,
    uses,
)
from paribus.metric import from_records
from paribus.results.formats import read_as, read_json
from paribus.results.records import FirstUse, Reuse, records_of
from paribus.results.registration import FILE, read_registration, utc_now
from paribus.results.store import CAMPAIGN, IDEAS, LEDGER, TEST_PART, ResultsFolder
from paribus.study import Study
from paribus.study.tuning_study import TASKS
from paribus.untrusted_io import is_regular

OF_TEXT = ("evaluation", "parts")  # where metrics of held-out text are read


def _first(folder: ResultsFolder) -> Path:
    """Return the path of a folder's first registration.

    The digest of this file identifies the study, because it is unaffected by added seeds.
    """
    first = folder.path / "registration-1.json"
    return first if is_regular(first) else folder.path / FILE


def parts_of(study: Study, registered: Mapping[str, Any], role: str = "") -> tuple[TextPart, ...]:
    """Return the distinct held-out texts of a study, optionally filtered by `role`."""
    parts: dict[tuple[str, str, str], TextPart] = {}
    for part in records_of(study).held_out_parts(study, registered):
        key = (part.role, part.digest, part.corpus)
        # The position is unknown for an arm that does not train on the corpus.
        if role in ("", part.role) and (key not in parts or parts[key].start is None):
            parts[key] = part
    return tuple(parts.values())


def primary_tests(study: Study, registered: Mapping[str, Any]) -> int:
    """Return the number of primary hypotheses whose metric is measured on held-out text."""
    metrics = from_records(registered["metrics"], "the registration")
    on_text = [
        e
        for e in study.judged
        if metrics[e.metric].record in OF_TEXT and e.metric.partition("/")[0] not in TASKS
    ]
    return len(on_text) * len(study.contrasts)


def events_of(folder: ResultsFolder, *, is_begun: bool = False) -> list[Event]:
    """Return the ledger events of a results folder, in chronological order.

    Set `is_begun` if the first trial is about to start, which counts as use of validation text.
    """
    registered = read_registration(folder)
    if registered is None:
        return []
    study, first = folder.read_study(), read_json(_first(folder))
    parts, tests = parts_of(study, registered), primary_tests(study, registered)
    event = partial(Event, study=study.name, registration=file_digest(_first(folder)))
    time, digest = first["registered_at"], first["study_digest"]
    events = [event(kind="registration", time=time, study_digest=digest, texts=parts, tests=tests)]

    def opened(time: str, role: str, tests: int) -> list[Event]:
        of_role = [part for part in parts if part.role == role]
        return [event(kind="opening", time=time, text=part, tests=tests) for part in of_role]

    if is_begun or any(folder.trial(*trial).is_finished for trial in study.trials):
        # A campaign confirms on validation text, and seals its test part for the end.
        confirms = campaign_of(folder) is not None and folder.path.name == "confirm"
        has_test = any(part.role == "test" for part in parts) and not confirms
        events += opened(utc_now(), "validation", 0 if has_test else tests)
        if not records_of(study).code():  # nobody seals the text of another's trainer
            events += opened(utc_now(), "test", tests)
    if test := folder.read_sealed(TEST_PART):
        events += opened(test["opened"], "test", tests)
    return events


def note(folder: ResultsFolder, *, is_begun: bool = False) -> None:
    """Append the missing events of a results folder to the ledger.

    If the ledger cannot be written, warn once and continue. See `events_of` for `is_begun`.
    """
    path = ledger_path()
    if path is not None and IS_RECORDING.get():
        try:
            _record(folder, path, is_begun)
        except ParibusError as error:
            _warn(str(error))


def _record(folder: ResultsFolder, path: Path, is_begun: bool) -> list[Event]:
    """Append the missing events of a folder to a ledger, and return the previous events."""
    with appending(path) as (events, append):
        recorded = {event.key for event in events}
        for event in events_of(folder, is_begun=is_begun):
            if event.key not in recorded:
                append(event)
    return events


def require_no_campaign(folder: ResultsFolder) -> None:
    """Raise ParibusError if a folder belongs to a campaign, which uses its test split once."""
    if (campaign := campaign_of(folder)) is not None:
        raise ParibusError(
            f"{folder.path} belongs to the campaign {campaign}, which uses its test split only "
            f"once, at its end; run `paribus campaign end {campaign}`"
        )


def open_in_ledger(
    folder: ResultsFolder, study: Study, *, is_begun: bool = False
) -> dict[str, Any]:
    """Record in the ledger that a study is about to read its test split.

    Call this before the split is read. Returns the content of `ledger.json`: the number of earlier
    studies that used the text, and the first of them. See `events_of` for `is_begun`.
    """
    require_no_campaign(folder)
    path, registered = ledger_path(), read_registration(folder)
    if path is None or registered is None:
        return Reuse(recorded=False, why=f"{VARIABLE} is empty").model_dump(mode="json")
    parts, tests = parts_of(study, registered, "test"), primary_tests(study, registered)
    try:
        before = uses(_record(folder, path, is_begun), parts, file_digest(_first(folder)))
    except ParibusError as error:
        _warn(str(error))
        return Reuse(recorded=False, why=str(error)).model_dump(mode="json")
    testing = [use.tests for use in before if use.tests] + [tests]
    return Reuse(
        recorded=True,
        opened_for=1 + sum(use.is_test for use in before),
        validated=sum(not use.is_test for use in before),
        first=FirstUse(study=before[0].study, time=before[0].time) if before else None,
        studies=len(testing),
        tests=sum(testing),
    ).model_dump(mode="json")


def read_reuse(folder: ResultsFolder) -> Reuse | None:
    """Return the content of ledger.json, or None if the test split was not read yet."""
    return read_as(Reuse, folder.path / LEDGER) if folder.has_sealed(LEDGER) else None


def campaign_of(folder: ResultsFolder) -> Path | None:
    """Return the folder of a results folder's campaign, or None if it belongs to no campaign."""
    ideas = folder.path.resolve().parent.parent
    return ideas.parent if ideas.name == IDEAS and is_regular(ideas.parent / CAMPAIGN) else None


@cache  # a process says each reason once
def _warn(why: str) -> None:
    logging.getLogger("paribus").warning(
        "cannot record the use of held-out texts in the ledger, so later studies may miss it: %s",
        why,
        extra={"once": f"ledger {why}"},
    )
