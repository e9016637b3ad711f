"""More seeds after results were seen: a second stage, registered before it runs.

`paribus extend` writes a registration that supersedes the one before, whose digest it holds. It
says which seeds are the second stage, and names the trials that were finished then. The weights of
the stages are those of the first registration, so that they cannot depend on what was seen.
`paribus run` then continues. Seeds that are added to the study file instead carry no error rate,
and the registration says so.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError
from paribus.metric import QUESTIONS, from_records
from paribus.results.formats import read_json, write_study
from paribus.results.look_record import OPEN, looks_left, needed_trials, read_looks
from paribus.results.record_format import records_of
from paribus.results.registration import FILE, from_study, supersede
from paribus.results.store import TEST, ResultsFolder
from paribus.study import Study, first_stage, parse_study
from paribus.study.bounds import MOST_SEEDS

LEAST_SEEDS = 2  # of a stage: inference needs two pairs


def extend(path: str | os.PathLike[str], seeds: int) -> Study:
    """Register a second stage of so many new seeds for the finished study in `path`.

    Returns the study with both stages. Seeds are the next ones after the largest there is. Raises
    ParibusError where the first stage is not finished, there is nothing left to resolve, claims are
    about new items, a stage was added before, or the source that would train it is another; then
    nothing is written.
    """
    folder = ResultsFolder(Path(path))
    folder.require_unpacked()
    study = folder.read_study()
    if isinstance(seeds, bool) or not LEAST_SEEDS <= seeds <= MOST_SEEDS:
        raise ParibusError(
            f"--seeds {seeds} is no size of a stage; it has {LEAST_SEEDS} to {MOST_SEEDS:,} seeds"
        )
    with folder.lock():
        registered = read_json(folder.path / FILE)
        _require_same_code(folder, registered)
        if registered.get("stages") and not study.stages:  # interrupted between the two files
            stages = tuple(registered["stages"]["seeds"])
            whole = _with_stages(study, tuple(registered["seeds"]), stages)
        else:
            _require_first_stage(folder, study, registered.get("seeds_added_after_results", []))
            _require_tested(folder, registered)
            _require_fixed_items(folder, study, registered)
            first = max(study.seeds) + 1
            added = tuple(range(first, first + seeds))
            whole = _with_stages(study, study.seeds + added, (len(study.seeds), seeds))
            finished = [f"{a}/seed-{s}" for a, s in study.trials if folder.trial(a, s).is_finished]
            about = {
                "registered_at": datetime.now(UTC).isoformat(timespec="seconds"),
                "results_when_registered": finished,
            }
            fresh = from_study(whole, registered["tasks"], registered.get("looks", {}))
            supersede(folder, registered | fresh, about)
        write_study(folder.path / "study.json", whole)
    return whole


def extended(study: Study, folder: ResultsFolder) -> Study:
    """`study` with the second stage that was registered for it in `folder`, if any."""
    if study.stages or not folder.exists:
        return study
    there = folder.read_study()
    if not there.stages or not first_stage(there).is_same(study):
        return study
    return study.model_copy(update={"seeds": there.seeds, "stages": there.stages})


def _require_same_code(folder: ResultsFolder, registered: dict[str, Any]) -> None:
    if registered.get("code") != records_of(folder.read_study()).code():
        version = registered.get("packages", {}).get("paribus", "of then")
        raise ParibusError(
            f"{folder.path} was registered with another source of paribus that trains and measures "
            f"(version {version}): both stages are trained by one; extend and run it with that one"
        )


def _with_stages(study: Study, seeds: tuple[int, ...], stages: tuple[int, ...]) -> Study:
    dump = study.model_dump() | {"seeds": seeds, "stages": stages}
    return parse_study(dump, folder=study.folder, foreign=study.is_foreign, sealed=study.sealed)


def _require_fixed_items(folder: ResultsFolder, study: Study, registered: dict[str, Any]) -> None:
    """Raise ParibusError where both stages would meet the same items, and claim about others.

    The p of the stages would share the error of the items, and the inverse-normal method combines
    independent ones.
    """
    metrics = from_records(registered["metrics"], "the registration")
    asked = bool(registered["tasks"])  # without, accuracy on questions is an endpoint of nothing
    shared = [
        e.metric
        for e in study.endpoints
        if metrics[e.metric].items
        and (asked or metrics[e.metric].items != QUESTIONS)
        and study.inference.of_new_items(metrics[e.metric])
    ]
    if shared:
        raise ParibusError(
            f"{folder.path} claims about {study.inference.target} (inference.target), and a second "
            f"stage meets the same items of {shared[0]} again, so that stages are not independent; "
            "seeds can be added where the target is 'this item set': else start a new study"
        )


def _require_tested(folder: ResultsFolder, registered: dict[str, Any]) -> None:
    sealed = any("test" in data.get("digests", {}) for data in registered["data"].values())
    if sealed and not folder.has_sealed(TEST):
        raise ParibusError(
            f"the first stage of {folder.path} is not evaluated on its sealed test part; finish it "
            "first with `paribus run`"
        )


def _require_first_stage(folder: ResultsFolder, study: Study, late: list[int]) -> None:
    if study.stages:
        raise ParibusError(
            f"{folder.path} has a second stage already ({study.stages[1]} seeds); what is open "
            "after it is a question for a new study"
        )
    if late:
        raise ParibusError(
            f"{folder.path} has seeds that were added after results had been seen "
            f"({', '.join(map(str, late))}): no error rate is left to extend; start a new study"
        )
    if len(study.seeds) < LEAST_SEEDS:
        raise ParibusError(f"the first stage has {len(study.seeds)} seed; a stage needs two")
    looks = read_looks(folder)
    needed = needed_trials(study, looks)
    missing = [trial for trial in needed if not folder.trial(*trial).is_finished]
    if missing or looks_left(study, looks):
        raise ParibusError(
            f"{len(needed) - len(missing)} of {len(needed)} trials of the first stage are finished"
            f"{'' if missing else ', and a look is due'}; finish it first with `paribus run`"
        )
    if looks and all(said["decision"] != OPEN for said in looks[-1]["contrasts"].values()):
        raise ParibusError(
            f"every contrast of {folder.path} was resolved, or given up, at a look; a second stage "
            "would add to none"
        )
