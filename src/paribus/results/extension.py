"""Second stage of a finished study: additional seeds that are registered before they run.

`paribus extend` replaces the registration with a new one that records the digest of the first. The
weights of both stages are fixed by the first registration, so they cannot depend on any result.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError
from paribus.metric import QUESTIONS, from_records
from paribus.results.formats import read_json, write_study
from paribus.results.records import records_of
from paribus.results.registration import FILE, from_study, supersede
from paribus.results.store import TEST, ResultsFolder
from paribus.study import Study, first_stage, parse_study
from paribus.study.base import MOST_SEEDS

LEAST_SEEDS = 2  # of a stage: inference needs two pairs


def extend(
    path: str | os.PathLike[str], seeds: int, before: Callable[[Study], None] | None = None
) -> Study:
    """Register a second stage for the finished study in the results folder `path`.

    The `seeds` new seeds are the integers after the largest existing seed. Returns the study with
    both stages, and passes it to `before` before writing it. With 0 seeds, a second stage without
    finished trials is removed. Raises ParibusError, without writing anything, if the study cannot
    be extended.
    """
    folder = ResultsFolder(Path(path))
    folder.require_home()
    study = folder.read_study()
    if seeds == 0:
        return _withdrawn(folder, study)
    if not LEAST_SEEDS <= seeds <= MOST_SEEDS:
        raise ParibusError(
            f"--seeds {seeds} is out of range for a second stage; choose {LEAST_SEEDS} to "
            f"{MOST_SEEDS:,} seeds"
        )
    with folder.lock():
        registered = read_json(folder.path / FILE)
        if problem := _why_not(folder, study, registered):
            raise ParibusError(f"{folder.path} cannot be extended, because {problem}")
        first = max(study.seeds) + 1
        dump = study.model_dump() | {
            "seeds": (*study.seeds, *range(first, first + seeds)),
            "stages": (len(study.seeds), seeds),
        }
        both_stages = parse_study(dump, folder=study.folder, foreign=study.is_foreign)
        if before:
            before(both_stages)
        # A run registers what is interrupted here.
        write_study(folder.path / "study.json", both_stages)
        trials = [f"{arm}/seed-{seed}" for arm, seed in study.trials]
        wanted = registered | from_study(both_stages, registered["tasks"])
        supersede(folder, wanted, {"results_when_registered": trials})
    return both_stages


def extended(study: Study, folder: ResultsFolder) -> Study:
    """Return `study` with the second stage registered in `folder`, or unchanged if none exists."""
    if study.stages or not folder.exists:
        return study
    registered = folder.read_study()
    if not registered.stages or first_stage(registered).digest != study.digest:
        return study
    return study.model_copy(update={"seeds": registered.seeds, "stages": registered.stages})


def _withdrawn(folder: ResultsFolder, study: Study) -> Study:
    """Restore the registration of the first stage, if no trial of the second one is finished."""
    first = first_stage(study)
    added = set(study.trials) - set(first.trials)
    if not added or any(folder.trial(*trial).is_finished for trial in added):
        raise ParibusError(
            f"{folder.path} has no second stage without finished trials; nothing can be undone"
        )
    with folder.lock():
        number = read_json(folder.path / FILE)["number"] - 1
        write_study(folder.path / "study.json", first)
        (folder.path / f"registration-{number}.json").replace(folder.path / FILE)
    return first


def _why_not(folder: ResultsFolder, study: Study, registered: dict[str, Any]) -> str:
    """Return why a study cannot be extended and how to proceed, or "" if it can."""
    if study.stages:
        return "it already has a second stage; start a new study"
    if study.plan is not None:
        return "its interim analyses spend the whole significance level; start a new study"
    if len(study.seeds) < LEAST_SEEDS:
        return (
            f"its first stage has {len(study.seeds)} seed, but a stage needs two; start a new study"
        )
    n_finished = sum(folder.trial(*trial).is_finished for trial in study.trials)
    if n_finished < len(study.trials):
        return f"only {n_finished} of {len(study.trials)} trials are finished; run the rest first"
    if registered.get("code") != records_of(study).code():
        return "it was trained by another version of paribus; install that version"
    sealed = any("test" in data.get("digests", {}) for data in registered["data"].values())
    if sealed and not folder.has_sealed(TEST):
        return "its withheld test split has not been evaluated; finish it with `paribus run` first"
    # The p-values of the stages would share the error of the items, and would not be independent.
    metrics = from_records(registered["metrics"], "the registration")
    for endpoint in study.endpoints:
        metric = metrics[endpoint.metric]
        measured = registered["tasks"] or metric.items != QUESTIONS
        if metric.items and measured and study.inference.claims_new_items(metric):
            target = study.inference.target
            return (
                f"its results for {endpoint.metric} generalize to {target}, but both stages would "
                "use the same items and be dependent; start a new study"
            )
    return ""
