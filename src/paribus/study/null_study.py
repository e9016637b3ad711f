"""A/A studies: the baseline against itself, so that whatever is found is a false positive."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from paribus.errors import ParibusError, require_positive
from paribus.study.allowed_text import MOST_NAME, MOST_NAME_BYTES
from paribus.study.study import Study, built
from paribus.study.trainer import require_stacked
from paribus.study.tuning import CHOSEN

BASELINE, AGAIN = "baseline", "again"
NULL = "-null"  # how its name ends


def null_studies(study: Study, replicates: int, *, tuned: bool = True) -> list[Study]:
    """`replicates` A/A studies of `study`, each on seeds of its own, and tuned as it is.

    Every arm becomes the baseline with other initial values from the same distributions, on the
    same batches, and is compared as the arm was: the contrasts, and with them the families, are
    those of the study. Unless `tuned`, all arms have the values of the study file.
    """
    require_positive(replicates=replicates)
    n_seeds = len(study.seeds)
    n_tuning = len(study.tuning.seeds) if study.tuning and tuned else 0
    studies = []
    for number in range(1, replicates + 1):
        table = _null_table(study)
        first = 1 + (number - 1) * (n_seeds + n_tuning)
        seeds = list(range(first, first + n_seeds + n_tuning))
        table["name"] = shortened(study.name, f"{NULL}-{number}")
        table["seeds"] = seeds[:n_seeds]
        if n_tuning:
            table["tuning"] |= {"seeds": seeds[n_seeds:], CHOSEN: {}}
        else:
            table["tuning"] = None
        studies.append(built(table, folder=study.folder, foreign=study.is_foreign))
    return studies


def null_name(study: Study) -> str:
    """Return what the folder of the A/A studies of `study` is called."""
    return study.name if study.name.endswith(NULL) else shortened(study.name, NULL)


def _null_table(study: Study) -> dict[str, Any]:
    """Return the study with every arm replaced by the baseline."""
    if len(study.seeds) < 2:
        raise ParibusError(f"the study has {len(study.seeds)} seed; a contrast needs two")
    require_stacked(study, "an A/A study")
    salt = study.format.salt
    first = attrgetter(salt)(study.setting(study.baseline))
    table = study.model_dump(exclude={"stages"})
    baseline = table["arms"][study.baseline]
    treatments = [arm for arm in study.arms if arm != study.baseline]
    called = {study.baseline: BASELINE}
    called |= {arm: AGAIN if i == 0 else f"{AGAIN}-{i + 1}" for i, arm in enumerate(treatments)}
    table |= {"baseline": BASELINE, "title": f"A/A calibration of {study.name}"}
    table["arms"] = {BASELINE: baseline | {"reference": None}}
    for i, arm in enumerate(treatments, start=1):
        reference = study.arms[arm].reference
        table["arms"][called[arm]] = {
            "title": f"baseline again, for {arm}",
            "set": baseline["set"] | {salt: first + i},  # from other initial values
            "reference": called[reference] if reference else None,
        }
    for hypothesis in table["hypotheses"]:
        hypothesis["arms"] = [called[arm] for arm in hypothesis["arms"]]
    for interaction in table["interactions"].values():
        for side in ("of", "than"):
            interaction[side] = [called[arm] for arm in interaction[side]]
    return table


def shortened(name: str, suffix: str) -> str:
    """`name` with `suffix`, as long as a name may be."""
    while len(name) + len(suffix) > MOST_NAME or len((name + suffix).encode()) > MOST_NAME_BYTES:
        name = name[:-1]
    return name + suffix
