"""Registrations, derived once more from the study, the trials and each other.

What follows from the study is made by the function that wrote it, and compared. Software and
machine are those of the trials; kept files are those in `sources/`; the history of seeds is the one
that the superseded registrations tell. The moment of a registration follows from nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from paribus.analysis import boundaries
from paribus.comparison import agree
from paribus.errors import ParibusError
from paribus.files import file_digest
from paribus.results import Results, ResultsFolder
from paribus.results.formats import read_json
from paribus.results.record_format import TRAINER
from paribus.results.registered_words import WORDS
from paribus.results.registration import (
    FILE,
    FILES,
    RETRIES,
    SCORES,
    SUBJECT,
    TUNING_SEEDS,
    from_study,
    repeats,
)
from paribus.study import (
    Study,
    changed_sources,
    measuring_paths,
    measuring_record,
    own_digests,
    rule_record,
)
from paribus.study.custom_code import SOURCES, measuring_digests
from paribus.study.trainer import STACKED
from paribus.untrusted_io import is_regular

# What a registration says besides what follows from the study.
BESIDE_STUDY = frozenset(
    {
        "code",
        "data",
        "device",
        "metrics",
        "number",
        "own_measures",
        "own_modules",
        "own_probes",
        "own_rule",
        "own_tasks",
        "packages",
        "registered_at",
        "repeated",
        "sources",
    }
)
# And one that supersedes another.
OF_LATER = frozenset({"results_when_registered", "supersedes"})
LATE = "seeds_added_after_results"  # by one that adds them without a stage of their own
# What may differ between a registration and the one before.
OF_SEEDS = OF_LATER | {"seeds", TUNING_SEEDS, "stages", "study_digest"}
OF_SEEDS |= {"number", "registered_at", LATE}

Record = dict[str, Any]


def registration_findings(results: Results) -> Iterator[str]:
    """Yield what the registrations say otherwise than what they can be derived from."""
    if not (results.path / FILE).is_file():
        yield "registration.json is missing; nothing shows what was fixed before the runs"
        return
    chain = yield from _chain(results.path)
    registered = chain[-1].record
    yield from _keys(results, chain)
    yield from _study(results, chain)
    for key in results.edited:
        yield f"study.json: {key} was edited after it was registered"
    for before, after in pairwise(chain):
        yield from _superseded(before, after)
    yield from _late_results(results, registered)
    yield from _machine(results, registered)
    yield from _sources(results, registered)
    yield from _own(results.study, registered)


@dataclass(frozen=True)
class _Registration:
    """A registration that is in force, or was: its file and its content."""

    file: Path
    record: Record

    @property
    def name(self) -> str:
        return self.file.name


def _chain(path: Path) -> Generator[str, None, list[_Registration]]:
    """Yield findings; return the registrations in their order, the one in force at the end."""
    last = _Registration(path / FILE, read_json(path / FILE))
    there = {file.name: file for file in sorted(path.glob("registration-*.json"))}
    number = last.record["number"]
    if number < 1:
        yield f"registration.json: number is {number}, and the first is 1"
    chain = []
    # Bounded by what there is: a number is whatever somebody wrote.
    for n in range(1, min(number, len(there) + 2)):
        file = there.pop(f"registration-{n}.json", None)
        if file is None or not is_regular(file):
            yield f"registration-{n}.json is missing, which was superseded"
            continue
        try:
            record = read_json(file)
        except ParibusError as error:
            yield str(error)
            continue
        if record["number"] != n:
            yield f"{file.name}: number is {record['number']}, and its name says {n}"
        chain.append(_Registration(file, record | {"number": n}))
    for name in there:
        yield f"{name} is no registration that registration.json, number {number}, supersedes"
    return [*chain, last]


def _keys(results: Results, chain: list[_Registration]) -> Iterator[str]:
    derived = from_study(results.study, {}, {}).keys()
    derived |= set() if results.study.trainer == STACKED else {TRAINER}
    for one in chain:
        record = one.record
        later = OF_LATER if record.get("stages") else OF_LATER | {LATE}
        known = BESIDE_STUDY | derived | (later if record["number"] > 1 else set())
        if unknown := record.keys() - known - {FILES, RETRIES, SCORES, SUBJECT}:
            yield f"{one.name}: {', '.join(sorted(unknown))} is nothing that a registration says"
        if missing := known - record.keys() - {WORDS}:
            yield f"{one.name}: {', '.join(sorted(missing))} is missing"


def _study(results: Results, chain: list[_Registration]) -> Iterator[str]:
    study, folder = results.study, ResultsFolder(results.path).records / "tasks"
    try:
        tasks = study.format.registered_tasks(study, folder)
    except ParibusError as error:
        yield str(error)
        tasks = chain[-1].record.get("tasks") or {}
    for one in chain:
        record = one.record
        seeds = study.seeds if one is chain[-1] else tuple(record["seeds"])
        stages = tuple((record.get("stages") or {}).get("seeds", ()))
        then = study.model_copy(update={"seeds": seeds, "stages": stages})
        expected = from_study(then, tasks, boundaries(study))
        if record["number"] == 1 and _steps(record["repeated"]) != _steps(repeats(then)):
            yield f"{one.name}: repeated is not what the study gives"
        for name, value in expected.items():
            if name in record and not agree(record[name], value):
                yield (
                    f"{one.name}: {name} is not what the study gives"
                    + (f": {record[name]}, and {value} there" if name == "seeds" else "")
                )
        if record["metrics"].keys() != set(study.metrics):
            yield f"{one.name}: metrics is not of what the study compares"
        if record["data"].keys() != set(study.arms):
            yield f"{one.name}: data is not of the arms of the study"


def _steps(repeated: dict[str, dict[str, int]]) -> dict[str, int]:
    """Return how many steps are trained again, keyed by arm."""
    return {arm: about["steps"] for arm, about in repeated.items()}


def _superseded(one: _Registration, other: _Registration) -> Iterator[str]:
    before, after, name = one.record, other.record, other.name
    keys = (before.keys() | after.keys()) - OF_SEEDS
    for key in sorted(keys):
        if not agree(before.get(key), after.get(key)):
            yield f"{name}: {key} is not that of the registration which it supersedes"
    if not set(before["seeds"]) < set(after["seeds"]):
        yield f"{name}: adds no seeds to {before['seeds']}, or leaves some out"
    if after.get("supersedes") != file_digest(one.file):
        yield f"{name}: supersedes is not the digest of the registration before it"
    late = list(before.get(LATE, []))
    if after.get("results_when_registered") and not after.get("stages"):
        late += [seed for seed in after["seeds"] if seed not in before["seeds"]]
    if after.get(LATE, []) != late:
        yield f"{name}: seeds_added_after_results is not {late}, which its predecessors give"
    finished = after.get("results_when_registered") or []
    lost = [label for label in before.get("results_when_registered", []) if label not in finished]
    if lost:
        yield f"{name}: results_when_registered lacks {', '.join(map(str, lost))}, finished before"


def _late_results(results: Results, registered: Record) -> Iterator[str]:
    finished = {trial.label for trial in results.finished}
    for label in registered.get("results_when_registered") or []:
        if label not in finished:
            yield f"registration.json: results_when_registered names {label}, which is not there"


def _machine(results: Results, registered: Record) -> Iterator[str]:
    for trial in results.finished if results.study.trainer == STACKED else ():
        there = trial.read_json("environment.json")
        # Other packages are told by the control 'software'; another source is never gone on with.
        if registered.get("code") != there.get("code"):
            yield f"registration.json: code is not that of trial {trial.label}"
        # Of a GPU trials tell the name, and the registration the kind.
        kind = there["device"] if there["device"] in ("cpu", "mps") else "cuda"
        if registered.get("device") != kind:
            yield f"registration.json: device is not that of trial {trial.label}"


def _sources(results: Results, registered: Record) -> Iterator[str]:
    """Yield files of `sources/` that nobody registered; `changed_files` looks at the others."""
    kept = ResultsFolder(results.path).records / SOURCES
    for file in sorted(kept.rglob("*")) if kept.is_dir() else ():
        name = file.relative_to(kept).as_posix()
        # Python writes what it has compiled beside what it imports.
        if file.is_dir() or "__pycache__" in file.parts or name in registered["sources"]:
            continue
        yield f"sources: {name} is there and was not registered"


def _own(study: Study, registered: Record) -> Iterator[str]:
    """Hold the digests of custom code against its source, as far as that is kept."""
    try:
        expected = measuring_record(study)
        rule = rule_record(study)
        modules = {arm: own_digests(study.setting(arm), study.folder) for arm in study.arms}
    except ParibusError:
        # Code outside the study's folder is not kept. What is measured with is named, at least.
        for name, paths in measuring_paths(study).items():
            if registered[name].keys() != set(paths):
                yield f"registration.json: {name} is not what the study names"
        return
    pairs = [(name, registered[name], value) for name, value in expected.items()]
    pairs.append(("own_rule", registered["own_rule"]["sources"], rule))
    if ":" in study.trainer:
        made = measuring_digests([study.trainer], "trainer", study.folder)
        pairs.append((TRAINER, registered[TRAINER]["sources"], made))
    there = registered["own_modules"]
    if there.keys() != modules.keys():
        yield "registration.json: own_modules is not of the arms of the study"
    pairs += [("own_modules", there.get(arm, {}), value) for arm, value in modules.items()]
    for name, stated, value in pairs:
        if (
            stated.keys() != value.keys()
            or changed_sources(stated, value) & registered["sources"].keys()
        ):
            yield f"registration.json: {name} is not what the files in sources give"
