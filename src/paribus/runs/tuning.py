"""Tuning before a verdict: trials in a folder of their own, then the choice, sealed.

The tuning trials are a study like any other (`paribus.study.tuning_study`): registered, stacked
where rates alone differ, sealed trial by trial and continued after an interruption.
"""

from __future__ import annotations

from collections.abc import Callable

from paribus.analysis import tuning_record
from paribus.analysis.tuning import differing_from, values_of
from paribus.errors import ParibusError
from paribus.results import Results, ResultsFolder, load_results
from paribus.results.store import TUNING
from paribus.study import Study, tuning_study, with_choice

Train = Callable[[Study, ResultsFolder], None]
"""Trains every trial of a study that is not finished yet, into its folder."""


def tune(study: Study, folder: ResultsFolder, train: Train) -> Study:
    """Train the tuning trials of `study` that are missing; return it with each arm's choice.

    A choice that was made already is made again, and compared with what was sealed.

    Raises ParibusError if the records in `folder` are of another plan.
    """
    sealed = folder.read_tuning()
    trials = _trained(study, folder, train, is_closed=bool(sealed))
    record = tuning_record(study, trials)
    if not sealed:
        folder.seal(TUNING, record)
    elif differing_from(sealed, record):
        raise ParibusError(
            f"{folder.path / TUNING} is not what the tuning trials give; `paribus verify` "
            "says what was changed: restore it"
        )
    tuned = with_choice(study, values_of(record))
    folder.create(tuned)
    return tuned


def _trained(study: Study, folder: ResultsFolder, train: Train, *, is_closed: bool) -> Results:
    """Return the finished tuning trials. With `is_closed` the choice was made of them, and none
    may be missing."""
    home = folder.tuning_trials
    if is_closed and not home.exists:
        raise ParibusError(
            f"{folder.path / TUNING} was made of trials that are no longer in {home.path}; "
            "restore them"
        )
    wanted = tuning_study(study)
    trials = [home.trial(arm, seed) for arm, seed in wanted.trials]
    if unfinished := [trial for trial in trials if not trial.is_finished]:
        if is_closed:
            raise ParibusError(
                f"tuning trial {unfinished[0].label} is no longer in {home.path}, and "
                f"{TUNING} was made of it: restore it, or choose another folder with --results"
            )
        home.require_same(wanted)
        train(wanted, home)
    return load_results(home.path)
