"""Registration: what would count is fixed before the first run, and kept.

`registration.json` is written by `paribus register` or the first `paribus run`. Later runs continue
under it or refuse, and name what changed. Seeds that are added after results exist make a new
registration that says so; the one before is kept beside it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from paribus.errors import ParibusError
from paribus.results.files import read_json, write_json
from paribus.results.store import ResultsFolder
from paribus.study import Study, probe_digests, source_digests
from paribus.study.canonical import changes

PACKAGES = ("paribus", "torch", "numpy", "scipy", "pyarrow", "safetensors", "lm_eval")
FILE = "registration.json"


def registration(
    study: Study, data: dict[str, Any], device: str, tasks: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What `study` commits to, the source of the user's own modules included.

    Args:
        study: the whole study, as resolved: its precision is settled.
        data: by arm, what `Dataset.record` says of its corpus and tokenizer.
        device: the kind of device it is run on.
        tasks: `suite_sha256`, `names` and `left_out` of its task suite; empty where it has none.
    """
    endpoint, tasks = study.primary, tasks or {}
    contrasts = [f"{arm} against {reference}" for arm, reference in study.contrasts]
    return {
        "study_digest": study.digest,
        "seeds": list(study.seeds),
        "primary_endpoint": {"metric": endpoint.metric, "margin": endpoint.margin},
        "endpoints": [e.model_dump(mode="json") for e in study.endpoints],
        "contrasts": contrasts,
        "families": {
            "primary": [f"{endpoint.metric}: {contrast}" for contrast in contrasts],
            "tasks": [f"{task}: {c}" for task in tasks.get("names", ()) for c in contrasts],
        },
        "tasks": tasks,
        "inference": study.inference.model_dump(mode="json"),
        "stability": study.stability.model_dump(mode="json"),
        "decision": study.decision.model_dump(mode="json"),
        "precision": {arm: study.setting(arm).training.precision for arm in study.arms},
        "data": data,
        "own_modules": {
            arm: source_digests(study.setting(arm).model.modules, study.folder)
            for arm in study.arms
        },
        "own_probes": probe_digests(study.probes.own, study.folder),
        "packages": {name: version(name) for name in PACKAGES},
        "device": device,
    }


def settle(folder: ResultsFolder, study: Study, wanted: dict[str, Any]) -> None:
    """Register `study` in its folder, or continue under the registration that is there.

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
        write_json(path, wanted | {"number": 1, "registered_at": now})
        return
    there = read_json(path)
    known = {key: there[key] for key in wanted if key in there}
    if known == wanted:
        folder.create(study)
        return
    # Seeds decide the digest too; everything else must be as it was.
    of_seeds = {"seeds", "study_digest"}
    differing = changes(
        {k: v for k, v in known.items() if k not in of_seeds},
        {k: v for k, v in wanted.items() if k not in of_seeds},
    )
    if differing:
        named = "; ".join(f"{key}: {a} there, {b} now" for key, (a, b) in differing.items())
        raise ParibusError(
            f"{folder.path} was registered otherwise ({named[:200]}); choose another folder with "
            "--results"
        )
    late = there.get("seeds_added_after_results", [])
    if finished:
        late = late + [seed for seed in study.seeds if seed not in there["seeds"]]
    folder.create(study)
    write_json(folder.path / f"registration-{there['number']}.json", there)
    write_json(
        path,
        wanted
        | {
            "number": there["number"] + 1,
            "registered_at": now,
            "seeds_added_after_results": late,
            "results_when_registered": finished,
        },
    )


def why_unregistered(folder: ResultsFolder, study: Study) -> str:
    """Why the records in `folder` are not those of what was registered; empty where they are."""
    registered = read_registration(folder)
    if registered is None:
        return "the registration is missing"
    if registered["study_digest"] != study.digest:
        return "the study was changed after it was registered"
    return ""


def read_registration(folder: ResultsFolder) -> dict[str, Any] | None:
    """The registration in force; None where the folder has none."""
    path = folder.path / FILE
    return read_json(path) if path.is_file() else None
