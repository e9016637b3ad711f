"""The choice of a tuned study, made once more from its tuning trials.

Each round is verified like any results folder (`paribus.verification.verify`); here it is checked
that the rounds are those of the plan, that the choice is what they give, and that it is the one
which the study's arms have.
"""

from __future__ import annotations

from collections.abc import Iterator

from paribus.analysis import next_candidates, tried_in, tuning_record
from paribus.comparison import Leniency, agree, compare
from paribus.results import Results, ResultsFolder
from paribus.study.tuning_study import FOLDER


def tuning_findings(results: Results) -> Iterator[str]:
    """What tuning.json or the study says otherwise than the tuning trials do."""
    study, folder = results.study, ResultsFolder(results.path)
    home, there = folder.path / FOLDER, results.tuning_rounds
    rounds = {one.path for one in there}
    for found in sorted(home.iterdir()) if home.is_dir() else ():
        if found not in rounds:
            yield f"{found.relative_to(folder.path)} is no round of tuning trials"
    record = folder.read_tuning()
    if study.tuning is None:
        if rounds or record:
            yield "there are tuning trials, and the study has no [tuning]"
        return
    tried = tried_in(study, there)
    if tried is None or next_candidates(study, tried):
        yield "incomplete: the tuning is not finished"
        return
    fresh = tuning_record(study, there)
    if differing := compare(record, fresh, Leniency(words=("caveats", "rule"))).differing:
        yield f"tuning.json is not what the tuning trials give: {', '.join(differing[:5])}"
    chosen = {arm: one["values"] for arm, one in fresh["chosen"].items()}
    if not agree(study.tuning.chosen, chosen):
        yield "study.json has other values for its arms than the tuning trials choose"
