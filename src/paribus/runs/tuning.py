"""Tuning before a verdict: rounds of trials in folders of their own, then the choice, sealed.

A round is a study like any other (`paribus.study.tuning_study`): registered, stacked where rates
alone differ, sealed trial by trial and gone on with after an interruption. What comes next follows
from the records alone, so a run that was killed anywhere finds its way again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paribus.analysis import next_candidates, tried_in, tuning_record
from paribus.analysis.tuning import differing_from, values_of
from paribus.errors import ParibusError
from paribus.results import Results, ResultsFolder, load_results, needed_trials, read_looks
from paribus.results.look_record import arms_by_seed
from paribus.results.store import TUNING
from paribus.study import Candidate, Study, of_arms, tuning_study, with_choice

Train = Callable[[Study, ResultsFolder], None]
"""Trains every trial of a study that is not finished yet, into its folder."""


def tune(study: Study, folder: ResultsFolder, train: Train) -> Study:
    """Train the tuning trials of `study` that are missing; returns it with each arm's choice.

    Where each verdict seed is tuned anew, those of the seeds and arms that are needed up to the
    next look. Where it was chosen already, it is chosen once more: nothing else says that a choice
    follows.

    Raises ParibusError where the records in `folder` are of another plan.
    """
    there = folder.read_tuning()
    if not study.tunes_anew:
        record = _tuned(study, folder, None, there, train)
        if not there:
            folder.seal(TUNING, record)
        tuned = with_choice(study, values_of(record))
    else:
        known, found = there.get("by_seed", {}), {}
        needed = arms_by_seed(needed_trials(study, read_looks(folder)))
        for seed, arms in needed.items():
            one = of_arms(study.at(seed), arms)
            found[str(seed)] = _tuned(one, folder, seed, known.get(str(seed), {}), train)
        if found.keys() != known.keys():
            folder.seal(TUNING, {"by_seed": found})
        tuned = with_choice(study, {}, {seed: values_of(one) for seed, one in found.items()})
    folder.create(tuned)
    return tuned


def _tuned(
    study: Study, folder: ResultsFolder, seed: int | None, there: dict[str, Any], train: Train
) -> dict[str, Any]:
    """Train what is missing of the rounds of a study, or of one verdict seed; returns what
    tuning.json is to say of them. `there` is what it says already, if it does."""
    rounds: list[Results] = []
    while True:
        tried = tried_in(study, rounds)
        candidates = next_candidates(study, tried)
        if not candidates:
            break
        first = len(tried.candidates) + 1 if tried else 1
        home = folder.tuning_round(len(rounds) + 1, seed)
        if there and not home.exists:
            raise ParibusError(
                f"{folder.path / TUNING} was made of trials that are no longer in {home.path}; "
                "restore them"
            )
        rounds.append(_round(study, candidates, first, home, train, is_closed=bool(there)))
    record = tuning_record(study, rounds, seed)
    if there and differing_from(there, record):
        raise ParibusError(
            f"{folder.path / TUNING} is not what the tuning trials give; `paribus verify` "
            "says what was changed: restore it"
        )
    return record


def _round(
    study: Study,
    candidates: list[Candidate],
    first: int,
    folder: ResultsFolder,
    train: Train,
    *,
    is_closed: bool,
) -> Results:
    """Return the finished trials of one round. With `is_closed` the choice was made of them, and
    none may be missing."""
    wanted = tuning_study(study, candidates, first)
    trials = [folder.trial(arm, seed) for arm, seed in wanted.trials]
    if unfinished := [trial for trial in trials if not trial.is_finished]:
        if is_closed:
            raise ParibusError(
                f"tuning trial {unfinished[0].label} is no longer in {folder.path}, and "
                f"{TUNING} was made of it: restore it, or choose another folder with --results"
            )
        folder.require_same(wanted)
        train(wanted, folder)
    return load_results(folder.path)
