"""Registration of a study, which fixes its analysis before the first run.

`paribus register` or the first `paribus run` writes `registration.json`. Later runs fail if the
study or its data differ from this record. `paribus extend` writes a new registration and keeps the
previous one as a numbered file.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from paribus.comparison import differences
from paribus.digests import changes
from paribus.errors import ParibusError
from paribus.files import file_digest, write_bytes
from paribus.metric import Metric
from paribus.numbers import some
from paribus.results.formats import as_model, read_json, write_json
from paribus.results.records import Registration, records_of
from paribus.results.store import ResultsFolder
from paribus.schema import VERSION
from paribus.study import (
    MEASURING,
    Study,
    custom_code,
    is_untuned,
    measuring_record,
    own_digests,
    parse_study,
)
from paribus.study.custom_code import EXAMPLES, SOURCES, digests_of, own_files, source_name
from paribus.untrusted_io import read_bytes

WORDS = "words"  # key of the descriptive texts; the registered ones are shown
FIRST = ("packages", "code", WORDS)  # keys that stay as first registered; compared separately
FILE = "registration.json"
OWN_FILE = re.compile(r".*[.:]([\w-]+\.py)$")  # the end of a key that names its digest
RULE = "own_rule"  # key of a custom decision rule: its source, and its table as data


def registration(
    study: Study,
    data: dict[str, Any],
    device: str,
    metrics: Mapping[str, Metric],
    tasks: dict[str, Any],
    own_rule: dict[str, Any],
) -> dict[str, Any]:
    """Return the registration of `study`, including digests of its custom code.

    Args:
        study: the resolved study, including its precision.
        data: records of corpus and tokenizer (`Dataset.record`), keyed by arm.
        device: the type of device on which trials run.
        metrics: definitions of the compared metrics, keyed by name.
        tasks: record of the task suite (`paribus.engine.tasks.registered_tasks`), or {} without
            tasks.
        own_rule: record of a custom decision rule (`Rule.record`), or {} for a built-in rule.
    """
    return {
        **from_study(study, tasks),
        WORDS: words_of(study),
        "metrics": {name: metric.metadata for name, metric in metrics.items()},
        "data": data,
        "own_modules": {arm: own_digests(study.setting(arm), study.folder) for arm in study.arms},
        **measuring_record(study),
        RULE: {
            "sources": digests_of([study.decision.rule], "decision.rule", study.folder),
            "rule": own_rule,
        },
        "packages": package_versions(records_of(study).packages),
        "code": records_of(study).code(),
        "device": device,
    }


@cache
def package_versions(names: tuple[str, ...]) -> dict[str, str]:
    """Return versions of installed packages, using the source version for paribus itself."""
    return {name: VERSION if name == "paribus" else metadata.version(name) for name in names}


def from_study(study: Study, tasks: dict[str, Any]) -> dict[str, Any]:
    """Return the registration entries that are derived from the study and its tasks.

    The study's digest covers the remaining content of study.json, such as arms and endpoints.
    """
    first = study.inference.first_stage_weight
    weights = [round(math.sqrt(share), 12) for share in (first, 1 - first)]
    return {
        "study_digest": study.digest,
        "seeds": list(study.seeds),
        "tasks": tasks,
        "stages": {"seeds": list(study.stages), "weights": weights} if study.stages else {},
    }


def settle(folder: ResultsFolder, study: Study, wanted: dict[str, Any]) -> None:
    """Register `study` in its folder, or check that it matches the existing registration."""
    folder.require_same(study)
    finished = [f"{a}/seed-{s}" for a, s in study.trials if folder.trial(a, s).is_finished]
    before, path = read_registration(folder), folder.path / FILE
    if before is None and finished:
        raise ParibusError(
            f"{path} is missing, although {len(finished)} trials are finished; restore the file, "
            "or choose another folder with --results",
            code="missing",
        )
    if before is None:
        folder.create(study)
        record = {
            "number": 1,
            "registered_at": utc_now(),
            "sources": keep_sources(study, folder.path),
            "repeated": repeats(study),
        }
        write_json(path, wanted | record)
        return
    if differing := _differing({key: before[key] for key in wanted if key in before}, wanted):
        kept = folder.path / SOURCES
        way_out = f"nothing has finished: delete {folder.path}, or give the study a new name"
        if finished or any(folder.path.glob("**/evaluation.json")):  # or of tuning trials
            way_out = (
                f"restore the registered version{f' from {kept}' if kept.is_dir() else ''}, or "
                f"give the study a new name (finished trials: paribus report {folder.path})"
            )
        raise ParibusError(
            f"{folder.path} was registered with a different {some(differing)}; {way_out}",
            code="different",
        )
    if edited := edited_words(study, before):
        words = "using the registered version of descriptive texts that were edited later: %s"
        logging.getLogger("paribus").warning(words, some(edited))
    folder.create(with_words(study, before))
    if list(study.seeds) != before["seeds"]:  # `paribus extend` was interrupted
        kept = {name: before[name] for name in FIRST if name in before}
        supersede(folder, before | wanted | kept, {"results_when_registered": finished})


def supersede(folder: ResultsFolder, wanted: dict[str, Any], metadata: dict[str, Any]) -> None:
    """Replace the current registration with `wanted`, and keep the old one as a numbered file.

    The new registration contains `metadata` and the digest of the old registration.
    """
    path = folder.path / FILE
    registered = read_json(path)
    before = folder.path / f"registration-{registered['number']}.json"
    write_bytes(before, read_bytes(path))  # as it lies: its digest is of its bytes
    stated = {
        "registered_at": utc_now(),
        "number": registered["number"] + 1,
        "supersedes": file_digest(before),
    }
    write_json(path, wanted | metadata | stated)


def utc_now() -> str:
    """Return the current UTC time in ISO 8601 format, with a resolution of one second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def repeats(study: Study) -> dict[str, dict[str, int]]:
    """Return the trials for repeatability checks, as {arm: {"seed": seed, "steps": steps}}.

    These are the first `steps` steps of each arm with custom code, at the study's first seed.
    """
    form, settings = records_of(study), {arm: study.setting(arm) for arm in study.arms}
    return {
        arm: {"seed": study.seeds[0], "steps": form.repeated_steps(setting)}
        for arm, setting in settings.items()
        if setting.own_parts
    }


def _differing(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the dotted keys that differ between two registrations.

    Ignore added seeds, package versions and descriptive texts, because they may change.
    """
    apart = {"seeds", "study_digest", "stages", "packages", WORDS}  # seeds decide the digest too
    compared = [{k: v for k, v in each.items() if k not in apart} for each in (before, now)]
    names = (OWN_FILE.sub(r"\1", key) for key in differences(*compared))
    return list(dict.fromkeys("source of paribus" if name == "code" else name for name in names))


def why_unregistered(
    folder: ResultsFolder,
    study: Study,
    trials: Mapping[tuple[str, int], dict[str, Any]],
) -> str:
    """Return why the records in `folder` contradict the registration, or "" if they agree.

    `trials` is the content of trial.json, keyed by (arm, seed).
    """
    registered = read_registration(folder)
    if registered is None:
        return "the registration is missing"
    if registered["study_digest"] != study.digest:
        return "the study was changed after it was registered"
    if is_untuned(study) and trials:
        return "tuning was registered, but no hyperparameters were selected"
    for (arm, seed), trial in trials.items():
        own, data = registered["own_modules"].get(arm, {}), registered["data"].get(arm, {})
        if trial.get("data", {}) != data:
            return f"trial {arm}/seed-{seed} used a text or tokenizer that was not registered"
        measuring = {name: registered[name] for name in MEASURING}
        recorded = {name: trial.get(name, {}) for name in MEASURING}
        if trial["own_modules"] != own or recorded != measuring:
            return f"trial {arm}/seed-{seed} used custom code that was not registered"
    return ""


def read_registration(folder: ResultsFolder) -> dict[str, Any] | None:
    """Return the content of registration.json, or None if the file does not exist."""
    path = folder.path / FILE
    if not path.is_file():
        return None
    record = read_json(path)
    as_model(Registration, record, path)
    return record


MOST_TEXT_BYTES = 32 * 2**20  # of a text that is kept


def keep_sources(study: Study, results: Path) -> dict[str, str]:
    """Copy a study's custom code and text files to its results folder.

    Skip files outside the study's folder, except for code of built-in examples. Returns
    {relative path: SHA-256}.
    """
    files = [f for path in custom_code(study) for f in own_files(path, study.folder, f"'{path}'")]
    files += [t for t in study.facts.texts if t.is_file() and t.stat().st_size <= MOST_TEXT_BYTES]
    kept, root = {}, study.folder.resolve()
    for file in sorted(set(files)):
        if not (file.is_relative_to(root) or file.is_relative_to(EXAMPLES)) or not file.is_file():
            continue
        name, content = source_name(file, study.folder), read_bytes(file)
        kept[name] = hashlib.sha256(content).hexdigest()
        if results / SOURCES / name != file:  # not where the study was read from there
            write_bytes(results / SOURCES / name, content)
    return kept


def words_of(study: Study) -> dict[str, Any]:
    """Return a study's descriptive texts: titles, question, and arm descriptions."""
    arms, interactions = {"title", "description"}, {"title"}
    parts = {"arms": {"__all__": arms}, "interactions": {"__all__": interactions}}
    return study.model_dump(include={"title": True, "question": True, **parts})


def edited_words(study: Study, registered: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the dotted keys of descriptive texts that differ from the registered ones."""
    return tuple(changes(registered[WORDS], words_of(study)))


def with_words(study: Study, registered: Mapping[str, Any]) -> Study:
    """Return a copy of `study` with the registered descriptive texts."""
    if not edited_words(study, registered):
        return study
    words, table = registered[WORDS], study.model_dump()
    for kind in ("arms", "interactions"):
        table[kind] = {name: part | words[kind].get(name, {}) for name, part in table[kind].items()}
    table |= {"title": words["title"], "question": words["question"]}
    return parse_study(table, folder=study.folder, foreign=study.is_foreign)
