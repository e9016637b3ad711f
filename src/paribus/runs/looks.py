"""Between trials: the look that is due, taken from the records and sealed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from paribus.analysis import Table, look_in_words, next_look, why_not_these_looks
from paribus.errors import ParibusError
from paribus.results import ResultsFolder, append_look, load_results, looks_left, read_looks
from paribus.results.opened_texts import note
from paribus.study import Study


def take_look(study: Study, folder: ResultsFolder, say: Callable[[str], object]) -> bool:
    """Take the next look of `study`, whose trials up to it are finished; whether there was one.

    Raises ParibusError where earlier looks are not what the trials give.
    """
    if not looks_left(study, read_looks(folder)):
        return False
    table = Table.of(load_results(folder.path))
    if why := why_not_these_looks(table):
        raise ParibusError(
            f"{folder.path}: {why}; `paribus verify` says what was changed: restore it"
        )
    entry = next_look(table)
    if entry is None:
        return False
    about: dict[str, Any] = {"taken_at": datetime.now(UTC).isoformat(timespec="seconds")}
    append_look(folder, entry | about)
    note(folder)
    say(look_in_words(study, entry))
    return True
