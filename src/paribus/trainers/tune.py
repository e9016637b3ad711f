"""Tuning before a verdict: rounds of trials in folders of their own, then the choice, sealed.

A round is a study like any other (`paribus.study.tuning_study`): registered, stacked where rates
alone differ, sealed trial by trial and gone on with after an interruption. What comes next follows
from the records alone, so a run that was killed anywhere finds its way again.
"""

from __future__ import annotations

from collections.abc import Callable

from paribus.analysis import next_candidates, tried_in, tuning_record
from paribus.analysis.tuning import differing_from
from paribus.errors import ParibusError
from paribus.results import Results, ResultsFolder, load_results
from paribus.study import Candidate, Study, tuning_study, with_choice

Train = Callable[[Study, ResultsFolder], None]
"""Trains every trial of a study that is not finished yet, into its folder."""


def tune(study: Study, folder: ResultsFolder, train: Train) -> Study:
    """Train the tuning trials of `study` that are missing; returns it with each arm's choice.

    Where it was chosen already, it is chosen once more: nothing else says that a choice follows.

    Raises ParibusError where the records in `folder` are of another plan.
    """
    rounds: list[Results] = []
    there = folder.read_tuning()
    while True:
        tried = tried_in(study, rounds)
        candidates = next_candidates(study, tried)
        if not candidates:
            break
        first = len(tried.candidates) + 1 if tried else 1
        if there and len(rounds) == len(folder.tuning_rounds):
            raise ParibusError(
                f"{folder.path / 'tuning.json'} was made of trials that are no longer in "
                f"{folder.tuning_round(len(rounds) + 1).path}; restore them"
            )
        rounds.append(_round(study, candidates, first, folder.tuning_round(len(rounds) + 1), train))
    record = tuning_record(study, rounds)
    if there and differing_from(there, record):
        raise ParibusError(
            f"{folder.path / 'tuning.json'} is not what the tuning trials give; `paribus verify` "
            "says what was changed: restore it"
        )
    if not there:
        folder.write_tuning(record)
    tuned = with_choice(study, {arm: one["values"] for arm, one in record["chosen"].items()})
    folder.create(tuned)
    return tuned


def _round(
    study: Study, candidates: list[Candidate], first: int, folder: ResultsFolder, train: Train
) -> Results:
    """Return the finished trials of one round, whose weights nobody needs any more."""
    wanted = tuning_study(study, candidates, first)
    if not folder.is_kept:
        folder.require_same(wanted)
        if not folder.exists or load_results(folder.path).unfinished:
            train(wanted, folder)
    results = load_results(folder.path)
    if results.unfinished:
        raise ParibusError(
            f"tuning trial {results.unfinished[0].label} is no longer in {folder.path}, whose "
            "other trials have no weights any more: restore it, or choose another folder with "
            "--results"
        )
    folder.drop_weights()
    return results
