"""Registration: what would count is fixed before the first run, and kept.

`registration.json` is written by `paribus register` or the first `paribus run`. Later runs continue
under it or refuse, and name what changed. Seeds that are added after results exist make a new
registration that says so; the one before is kept beside it.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from paribus.comparison import compare
from paribus.digests import changes
from paribus.errors import ParibusError
from paribus.files import file_digest, write_bytes
from paribus.metric import Metric, find, from_records
from paribus.numbers import some
from paribus.results.formats import read_json, write_json
from paribus.results.record_format import TRAINER, records_of
from paribus.results.registered_words import WORDS, edited_words, words_of
from paribus.results.software import package_differences
from paribus.results.store import ResultsFolder
from paribus.results.trial_records import distinct
from paribus.rng import key
from paribus.study import (
    MEASURING,
    Study,
    changed_sources,
    custom_code,
    is_untuned,
    measuring_record,
    own_digests,
    rule_record,
)
from paribus.study.custom_code import SOURCES, own_files, source_name
from paribus.study.importing import EXAMPLES
from paribus.study.tuning import CHOSEN
from paribus.untrusted_io import RECORD_BYTES, TOKENIZER_BYTES, read_bytes
from paribus.version import VERSION

OF_MACHINES = ("packages", "code")  # compared on their own
FILE = "registration.json"
RETRIES = "retries"
# Of other programs' runs: digests of the files that were there when it was written.
FILES = "files"
RULE = "own_rule"  # the user's own decision rule: its source, and what it decides, as data


def registration(
    study: Study,
    data: dict[str, Any],
    device: str,
    metrics: Mapping[str, Metric],
    tasks: dict[str, Any] | None = None,
    own_rule: dict[str, Any] | None = None,
    looks: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what `study` commits to, the source of the user's own modules included.

    Args:
        study: the whole study, as resolved: its precision is settled.
        data: by arm, what `Dataset.record` says of its corpus and tokenizer.
        device: the kind of device it is run on.
        metrics: what it compares, as its code declares it: units and directions are registered.
        tasks: `suite_sha256`, `names` and `left_out` of its task suite, and the `standard` tasks by
            version and digest (`paribus.engine.tasks.registered_tasks`); empty where it asks none.
        own_rule: the table of the user's own rule (`Rule.record`); empty for one that ships.
        looks: the plan of looks with its boundaries (`paribus.analysis.boundaries`); empty where
            it has none.
    """
    return {
        **from_study(study, tasks or {}, looks or {}),
        "metrics": {name: metric.about for name, metric in metrics.items()},
        "data": data,
        "own_modules": {arm: own_digests(study.setting(arm), study.folder) for arm in study.arms},
        **measuring_record(study),
        RULE: {"sources": rule_record(study), "rule": own_rule or {}},
        "packages": package_versions(records_of(study).packages),
        "code": records_of(study).code(),
        "device": device,
    }


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of installed packages; our own is that of the source, installed or not.

    Raises:
        ParibusError: one of them is not installed.
    """
    return {name: _version(name) for name in names}


def _version(name: str) -> str:
    if name == "paribus":
        return VERSION
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        raise ParibusError(
            f"the package '{name}' is not installed, and every record states its version; "
            "install paribus with its dependencies: pip install ."
        ) from None


def from_study(study: Study, tasks: dict[str, Any], looks: dict[str, Any]) -> dict[str, Any]:
    """Return the part of it that follows from the study, its task suite and its looks."""
    contrasts = [f"{arm} against {reference}" for arm, reference in study.contrasts]
    return {
        "study_digest": study.digest,
        "seeds": list(study.seeds),
        "endpoints": [e.model_dump(mode="json") for e in study.endpoints],
        "contrasts": contrasts,
        "families": {
            name: [
                f"{endpoint.metric}: {contrast}"
                for endpoint in study.endpoints
                if endpoint.primary == (name == "primary")
                for contrast in contrasts
            ]
            for name in ("primary", "secondary")
        }
        | {
            "tasks": [f"{task}: {c}" for task in task_names(tasks) for c in contrasts],
        },
        "tasks": tasks,
        "looks": looks,
        "stages": _stages(study),
        "inference": study.inference.model_dump(mode="json"),
        "stability": study.stability.model_dump(mode="json"),
        "decision": study.decision.model_dump(mode="json", exclude={"unreachable"}),
        "tuning": _tuning(study),
        WORDS: words_of(study),
        **records_of(study).registered(study),
    }


def task_names(tasks: dict[str, Any]) -> list[str]:
    """Return the tasks that a registration names: of the study's own text, then the harness's."""
    return [*tasks.get("names", ()), *tasks.get("standard", {})]


def _stages(study: Study) -> dict[str, Any]:
    if not study.stages:
        return {}
    first = study.inference.first_stage_weight
    return {
        "seeds": list(study.stages),
        "weights": [round(math.sqrt(share), 12) for share in (first, 1 - first)],
    }


def _tuning(study: Study) -> dict[str, Any]:
    if study.tuning is None:
        return {}
    plan = study.tuning.model_dump(mode="json", exclude={CHOSEN})
    return plan | {"candidates": study.tuning.candidates}


def settle(
    folder: ResultsFolder,
    study: Study,
    wanted: dict[str, Any],
    *,
    retries: int | None = None,
    there: Callable[[], Mapping[str, Any]] = dict,
) -> None:
    """Register `study` in its folder, or continue under the registration that is there.

    `retries` is how often a trial is begun again whose worker died; what was registered stands.
    `there` gives FILES of other programs' runs: digests of those that are there already.
    Raises ParibusError where what is registered differs from `wanted` in more than seeds added.
    """
    folder.require_same(study)
    path = folder.path / FILE
    now = datetime.now(UTC).isoformat(timespec="seconds")
    finished = [f"{a}/seed-{s}" for a, s in study.trials if folder.trial(a, s).is_finished]
    if not path.is_file() and finished:
        raise ParibusError(
            f"{path} is missing though {len(finished)} trials are finished; restore it, or choose "
            "another folder with --results"
        )
    if not path.is_file():
        folder.create(study)
        record = {
            **({} if retries is None else {RETRIES: retries}),
            **{key: value for key, value in there().items() if value},
            "number": 1,
            "registered_at": now,
            "sources": keep_sources(study, folder.path),
            "repeated": repeats(study),
        }
        write_json(path, wanted | record)
        return
    before = read_json(path)
    known = {key: before[key] for key in wanted if key in before}
    differing = _differing(known, wanted)
    if not differing and list(study.seeds) == before["seeds"]:
        _tell_other_software(before, wanted)
        _warn_edited_words(study, before)
        folder.create(study)
        return
    if differing:
        rest = f" (and {len(differing) - 3} more)" if len(differing) > 3 else ""
        raise ParibusError(
            f"{folder.path} was registered otherwise: {'; '.join(differing[:3])}{rest}; restore "
            "what was, or choose another folder with --results"
        )
    if before.get("stages", {}) != wanted["stages"]:
        raise ParibusError(
            f"{folder.path}: a second stage was being registered; run `paribus extend` again"
        )
    late = before.get("seeds_added_after_results", [])
    if finished:
        late = late + [seed for seed in study.seeds if seed not in before["seeds"]]
    _tell_other_software(before, wanted)
    _warn_edited_words(study, before)
    folder.create(study)
    supersede(
        folder,
        before | wanted | {name: before[name] for name in OF_MACHINES if name in before},
        {
            "sources": before["sources"],
            "repeated": before["repeated"],
            "registered_at": now,
            "seeds_added_after_results": late,
            "results_when_registered": finished,
        },
    )


def supersede(folder: ResultsFolder, wanted: dict[str, Any], about: dict[str, Any]) -> None:
    """Keep the registration in force beside `wanted`, which takes its place with its digest."""
    path = folder.path / FILE
    registered = read_json(path)
    before = folder.path / f"registration-{registered['number']}.json"
    write_bytes(before, read_bytes(path, RECORD_BYTES))  # as it lies: its digest is of its bytes
    # A later registration changes no text.
    wanted = wanted | {WORDS: registered[WORDS]}
    about = about | {"number": registered["number"] + 1, "supersedes": file_digest(before)}
    write_json(path, wanted | about)


def _tell_other_software(there: dict[str, Any], now: dict[str, Any]) -> None:
    """Say in one line what the study was registered with and is continued without."""
    packages = package_differences(there.get("packages", {}), now.get("packages", {}))
    if packages:
        words = ", ".join(
            f"{name} {before} there, {here} now" for name, _, before, here in packages
        )
        logging.getLogger("paribus").warning(
            "the study was registered with other versions (%s): the control 'software' says which "
            "trials differ",
            words,
        )


def _warn_edited_words(study: Study, registered: dict[str, Any]) -> None:
    """Warn that texts were edited, and that those that were registered are shown."""
    if edited := edited_words(study, registered):
        logging.getLogger("paribus").warning(
            "edited after registration: %s; answers show the registered texts", some(edited)
        )


def registered_retries(folder: ResultsFolder) -> int | None:
    """Return how often a trial is begun again whose worker died, where that is registered."""
    return (read_registration(folder) or {}).get(RETRIES)


def repetitions(folder: ResultsFolder) -> dict[str, dict[str, int]]:
    """Return by arm with custom code of which `seed` the trial is trained again, and how many
    `steps`."""
    return read_json(folder.path / FILE)["repeated"]


def repeats(study: Study) -> dict[str, dict[str, int]]:
    """Return a seed of every arm with custom code, for some per cent of its iterations.

    It is drawn, and by the study's digest, so that no seed is the one that is never looked at: of
    those that are trained in any case.
    """
    repeated, seeds = {}, study.seeds[: study.plan.looks[0] if study.plan else None]
    for arm in study.arms:
        setting = study.setting(arm)
        if setting.own_parts:
            steps = records_of(study).repeated_steps(setting)
            drawn = seeds[key(0, "repeated", study.digest, arm) % len(seeds)]
            repeated[arm] = {"seed": drawn, "steps": steps}
    return repeated


def _differing(there: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return what differs between two registrations, each in words.

    Seeds that were added do not, nor does what a study may be continued with, nor texts that only
    describe it: those that were registered are shown.
    """
    texts = []
    users: dict[str, list[str]] = {}
    for arm, sources in now.get("own_modules", {}).items():
        for file in changed_sources(there.get("own_modules", {}).get(arm, {}), sources):
            users.setdefault(file, []).append(f"arm '{arm}'")
    for name, where in MEASURING.items():
        for file in changed_sources(there.get(name, {}), now.get(name, {})):
            users.setdefault(file, []).append(where)
    theirs, ours = (one.get(RULE, {}).get("sources", {}) for one in (there, now))
    for file in changed_sources(theirs, ours):
        users.setdefault(file, []).append("decision.rule")
    theirs, ours = (one.get(TRAINER, {}).get("sources", {}) for one in (there, now))
    for file in changed_sources(theirs, ours):
        users.setdefault(file, []).append("trainer")
    if not users and there.get(RULE) != now.get(RULE):
        texts.append("the rule that decision.rule names decides otherwise")
    texts += [f"{file} was edited (used by {', '.join(by)})" for file, by in users.items()]
    if there.get("code") != now.get("code"):
        texts.append("the source of paribus that trains and measures is another")
    # Seeds decide the digest too.
    apart = {"seeds", "study_digest", "stages", "own_modules"}
    apart |= {*MEASURING, RULE, *OF_MACHINES, WORDS}
    before, after = ({k: v for k, v in one.items() if k not in apart} for one in (there, now))
    keys = {key.partition(".")[0] for key in compare(before, after).differing}
    rest = changes(*({key: one.get(key) for key in keys} for one in (before, after)))
    return texts + [f"{key}: {_shown(a)} there, {_shown(b)} now" for key, (a, b) in rest.items()]


def _shown(value: Any) -> str:
    """Return a value in a message; of a digest, as much as tells two apart."""
    text = str(value)
    return text[:12] if re.fullmatch("[0-9a-f]{64}", text) else text


def why_unregistered(
    folder: ResultsFolder,
    study: Study,
    trials: Mapping[tuple[str, int], dict[str, Any]],
    *,
    earlier: bool = False,
) -> str:
    """Why the records in `folder` are not those of what was registered; empty where they are.

    `trials` is trial.json by (arm, seed): their text and sources must be the registered ones.
    `earlier` is whether they are held against what was registered before a second stage was.
    """
    registered = read_registration(folder)
    if registered and earlier:
        registered = _before_stages(folder, registered)
    if registered is None:
        return "the registration is missing"
    if registered["study_digest"] != study.digest:
        return "the study was changed after it was registered"
    if is_untuned(study) and trials:
        return "the arms were not tuned as registered: nothing was chosen for them"
    declared = from_records(registered["metrics"], "the registration")
    for (arm, seed), metrics in distinct(trials, "metrics"):
        theirs = from_records(metrics, f"trial {arm}/seed-{seed}")
        for name, metric in declared.items():
            if find(name, theirs) not in (metric, None):
                return f"trial {arm}/seed-{seed} declares {name} otherwise than was registered"
    for (arm, seed), trial in trials.items():
        for name, found, words in (
            ("data", trial.get("data", {}), "text or tokenizer"),
            ("own_modules", trial["own_modules"], "source of own modules"),
        ):
            if registered[name].get(arm, {}) != found:
                return f"trial {arm}/seed-{seed} has another {words} than was registered"
        for name, where in MEASURING.items():
            now = trial.get(name, {})
            plain = isinstance(now, dict) and all(isinstance(of, dict) for of in now.values())
            if not plain or changed_sources(registered[name], now):
                return f"trial {arm}/seed-{seed} has another source of {where} than was registered"
    return ""


def _before_stages(folder: ResultsFolder, registered: dict[str, Any]) -> dict[str, Any]:
    while registered.get("stages") and registered["number"] > 1:
        registered = read_json(folder.path / f"registration-{registered['number'] - 1}.json")
    return registered


def registered_rule(folder: ResultsFolder) -> dict[str, Any]:
    """Return the table of the user's own rule, as registered; empty where there is none."""
    return (read_registration(folder) or {}).get(RULE, {}).get("rule", {})


def read_registration(folder: ResultsFolder) -> dict[str, Any] | None:
    """Return the registration in force; None where the folder has none."""
    path = folder.path / FILE
    return read_json(path) if path.is_file() else None


MOST_TEXT_BYTES = 32 * 2**20  # of a text that is kept


def keep_sources(study: Study, results: Path) -> dict[str, str]:
    """Copy what `study` names to `results`; returns {relative path: SHA-256 of the file}.

    Code of installed packages is not copied, except that of an example.
    """
    kept = {}
    root = study.folder.resolve()
    for file in sorted(set(_named(study))):
        if not (file.is_relative_to(root) or file.is_relative_to(EXAMPLES)) or not file.is_file():
            continue
        name, content = source_name(file, study.folder), read_bytes(file, TOKENIZER_BYTES)
        kept[name] = hashlib.sha256(content).hexdigest()
        if results / SOURCES / name != file:  # not where the study was read from there
            write_bytes(results / SOURCES / name, content)
    return kept


def require_same_sources(study: Study, trials: Mapping[tuple[str, int], dict[str, Any]]) -> None:
    """Raise ParibusError where the custom code of a trial is not what it was trained with.

    `trials` is trial.json by (arm, seed).
    """
    for (arm, seed), trial in trials.items():
        now = own_digests(study.setting(arm), study.folder)
        if changed := changed_sources(trial["own_modules"], now):
            names = ", ".join(sorted(changed))
            raise ParibusError(
                f"{names} in {study.folder} is not what trial {arm}/seed-{seed} was trained with; "
                "restore it"
            )


def _named(study: Study) -> Iterable[Path]:
    for path in custom_code(study):
        yield from own_files(path, study.folder, f"'{path}'")
    for text in study.facts.texts:
        if text.is_file() and text.stat().st_size <= MOST_TEXT_BYTES:
            yield text
