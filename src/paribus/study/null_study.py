"""A/A studies: the baseline against itself, so that whatever is found is a false positive."""

from __future__ import annotations

from paribus.errors import ParibusError, require_positive
from paribus.study.allowed_text import MOST_NAME, MOST_NAME_BYTES
from paribus.study.study import Study, built

BASELINE, AGAIN = "baseline", "again"
NULL = "-null"  # how its name ends


def null_study(study: Study, replicates: int) -> Study:
    """`replicates` A/A studies of `study` in one: as many seeds each, none of them shared.

    Every arm becomes the baseline with other initial values from the same distributions, on the
    same batches, and is compared as the arm was: the contrasts, and with them the families, are
    those of the study. Raises ParibusError for fewer than one replicate or two seeds.
    """
    require_positive(replicates=replicates)
    if len(study.seeds) < 2:
        raise ParibusError(f"the study has {len(study.seeds)} seed; a contrast needs two")
    table = study.model_dump(exclude={"claims", "plan", "stages", "tuning"})
    baseline = table["arms"][study.baseline]
    others = [arm for arm in study.arms if arm != study.baseline]
    called = {study.baseline: BASELINE}
    called |= {arm: AGAIN if i == 0 else f"{AGAIN}-{i + 1}" for i, arm in enumerate(others)}
    table["baseline"] = BASELINE
    table["arms"] = {BASELINE: baseline | {"reference": None}}
    for i, arm in enumerate(others, start=1):
        reference = study.arms[arm].reference
        table["arms"][called[arm]] = {
            "title": f"baseline again, for {arm}",
            "set": baseline["set"] | study.format.salted(study, i),
            "reference": called[reference] if reference else None,
        }
    for hypothesis in table["hypotheses"]:
        hypothesis["arms"] = [called[arm] for arm in hypothesis["arms"]]
    table["name"] = study.name if study.name.endswith(NULL) else shortened(study.name, NULL)
    table["title"] = f"A/A calibration of {study.name}"
    table["seeds"] = list(range(1, replicates * len(study.seeds) + 1))
    return built(table, folder=study.folder, foreign=study.is_foreign)


def shortened(name: str, suffix: str) -> str:
    """`name` with `suffix`, as long as a name may be."""
    while len(name) + len(suffix) > MOST_NAME or len((name + suffix).encode()) > MOST_NAME_BYTES:
        name = name[:-1]
    return name + suffix
