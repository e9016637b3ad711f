"""Record of the looks taken so far, and the trials that a study needs next.

`looks.json` is sealed and has an entry for each look, in order; entries never change. An entry can
be recomputed from the trials (`paribus.analysis.looks`), so a run that was killed before it wrote
an entry writes the same one later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paribus.results.store import LOOKS, ResultsFolder
from paribus.study import Study

GOES_ON = "continue"  # the decision on a contrast that is tested again at the next look
OPEN = "open"  # and at the last look

Trial = tuple[str, int]
Entry = dict[str, Any]


def read_looks(folder: ResultsFolder) -> list[Entry]:
    """Return the entries of the looks taken so far.

    Raises ParibusError if the sealed record was changed.
    """
    return folder.read_sealed(LOOKS).get("looks", [])


def append_look(folder: ResultsFolder, entry: Mapping[str, Any]) -> None:
    """Append a look to the record and seal it."""
    folder.seal(LOOKS, {"looks": [*read_looks(folder), entry]})


def needed_trials(study: Study, looks: Sequence[Entry]) -> list[Trial]:
    """Return the trials that are needed for the next look, given the looks taken so far.

    Without a plan of looks, these are all trials. An arm is needed as long as its contrast
    continues, and a reference as long as any contrast with it continues.
    """
    if study.plan is None:
        return study.trials
    upto = dict.fromkeys(study.arms, 0)
    for arm, reference in study.contrasts:
        seeds = study.plan.looks[look_of(study, looks, arm)]
        for name in (arm, reference):
            upto[name] = max(upto[name], seeds)
    alone = max(upto.values())  # of arms that are in no contrast
    return [
        (arm, seed)
        for i, seed in enumerate(study.seeds)
        for arm in study.arms
        if i < (upto[arm] or alone)
    ]


def look_of(study: Study, looks: Sequence[Entry], arm: str) -> int:
    """Return the index of the look at which an arm's contrast stopped, or else of its next look."""
    assert study.plan is not None
    for number, entry in enumerate(looks):
        if entry["contrasts"][arm]["decision"] != GOES_ON:
            return number
    return min(len(looks), len(study.plan.looks) - 1)


def resolved_at(looks: Sequence[Entry], arm: str, metric: str) -> int | None:
    """Return the index of the look that resolved an endpoint of an arm's contrast, or None.

    A resolved endpoint stays resolved, even if the contrast continues because of another endpoint.
    """
    for number, entry in enumerate(looks):
        if entry["contrasts"][arm].get("endpoints", {}).get(metric, {}).get("resolved"):
            return number
    return None


def looks_left(study: Study, looks: Sequence[Entry]) -> bool:
    """Return whether another look will be taken."""
    if study.plan is None or len(looks) == len(study.plan.looks):
        return False
    return not looks or any(c["decision"] == GOES_ON for c in looks[-1]["contrasts"].values())
