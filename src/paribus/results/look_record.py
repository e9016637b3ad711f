"""Record of completed interim analyses (looks), and selection of the trials needed next.

`looks.json` is append-only and has one entry per interim analysis, in order. Entries can be
recomputed from the trials (`paribus.analysis.looks`), so a run that was killed before writing an
entry writes the same entry when it resumes.
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
    """Return the entries of all completed interim analyses.

    Raises ParibusError if looks.json does not match its digest in the manifest.
    """
    return folder.read_sealed(LOOKS).get("looks", [])


def append_look(folder: ResultsFolder, entry: Mapping[str, Any]) -> None:
    """Append an interim analysis to looks.json, and update its digest in the manifest."""
    folder.seal(LOOKS, {"looks": [*read_looks(folder), entry]})


def needed_trials(study: Study, looks: Sequence[Entry]) -> list[Trial]:
    """Return the trials that are needed for the next interim analysis.

    Without interim analyses, return all trials. An arm is needed until its contrast has stopped,
    and a reference until all contrasts with it have stopped.
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
    """Return the index of the look that stopped an arm's contrast, or else of the next look."""
    assert study.plan is not None
    for number, entry in enumerate(looks):
        if entry["contrasts"][arm]["decision"] != GOES_ON:
            return number
    return min(len(looks), len(study.plan.looks) - 1)


def resolved_at(looks: Sequence[Entry], arm: str, metric: str) -> int | None:
    """Return the index of the look that resolved an endpoint of a contrast, or None if none did.

    A resolved endpoint is final, even if the contrast continues because of another endpoint.
    """
    for number, entry in enumerate(looks):
        if entry["contrasts"][arm].get("endpoints", {}).get(metric, {}).get("resolved"):
            return number
    return None


def looks_left(study: Study, looks: Sequence[Entry]) -> bool:
    """Return whether the study continues to another interim analysis."""
    if study.plan is None or len(looks) == len(study.plan.looks):
        return False
    return not looks or any(c["decision"] == GOES_ON for c in looks[-1]["contrasts"].values())
