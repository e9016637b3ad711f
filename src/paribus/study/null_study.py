"""A/A studies, which compare the baseline with itself to measure false positives."""

from __future__ import annotations

from paribus.errors import ParibusError
from paribus.study.base import shortened
from paribus.study.study import Study, built
from paribus.study.trainer import STACKED

SALT = "model.init.salt"  # selects other initial values from the same distributions


def null_studies(study: Study, number: int) -> list[Study]:
    """Return `number` A/A studies based on `study`, with disjoint seeds.

    Every arm becomes the baseline with differently initialized weights and the same batches. All
    other settings, including the tuning plan, are unchanged. Raises ParibusError if the study does
    not use the built-in engine.
    """
    if study.trainer != STACKED:
        raise ParibusError(
            f"trainer '{study.trainer}' does not support A/A studies, because it cannot vary the "
            f"initial weights; use a study with trainer = '{STACKED}'",
            code="conflict",
        )
    n_seeds, n_tuning = len(study.seeds), len(study.tuning.seeds) if study.tuning else 0
    salt, studies = study.setting(study.baseline).model.init.salt, []
    for k in range(number):
        table = study.model_dump(exclude={"stages"})
        first = 1 + k * (n_seeds + n_tuning)
        table["name"] = shortened(study.name, f"-null-{k + 1}")
        table["seeds"] = list(range(first, first + n_seeds))
        if study.tuning:
            table["tuning"]["seeds"] = list(range(first + n_seeds, first + n_seeds + n_tuning))
        for i, arm in enumerate(study.arms):
            overrides = study.arms[study.baseline].set
            if arm != study.baseline:
                overrides = overrides | {SALT: salt + 1 + i}
            table["arms"][arm] |= {"set": overrides, "description": "the baseline again"}
        studies.append(built(table, folder=study.folder, foreign=study.is_foreign))
    return studies
