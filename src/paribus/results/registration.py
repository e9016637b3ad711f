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
from paribus.study import Study
from paribus.study.canonical import changes

PACKAGES = ("paribus", "torch", "numpy", "scipy")
FILE = "registration.json"


def registration(study: Study, data: dict[str, Any], device: str) -> dict[str, Any]:
    """What `study` commits to.

    Args:
        study: the whole study, as resolved.
        data: by arm, what `Dataset.record` says of its corpus and tokenizer.
        device: the kind of device it is run on.
    """
    endpoint = study.primary
    return {
        "study_digest": study.digest,
        "seeds": list(study.seeds),
        "primary_endpoint": {"metric": endpoint.metric, "margin": endpoint.margin},
        "endpoints": [e.model_dump(mode="json") for e in study.endpoints],
        "contrasts": [f"{arm} against {reference}" for arm, reference in study.contrasts],
        "families": {
            "primary": [f"{endpoint.metric}: {arm} against {ref}" for arm, ref in study.contrasts]
        },
        "inference": study.inference.model_dump(mode="json"),
        "stability": study.stability.model_dump(mode="json"),
        "decision": study.decision.model_dump(mode="json"),
        "data": data,
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
    finished = [f"{a}/seed-{s}" for a, s in study.trials if folder.trial(a, s).is_finished]
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


def read_registration(folder: ResultsFolder) -> dict[str, Any] | None:
    """The registration in force; None where the folder has none."""
    path = folder.path / FILE
    return read_json(path) if path.is_file() else None
