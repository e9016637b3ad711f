"""`training.precision = "auto"`: the precision is open until the study is registered."""

from __future__ import annotations

from paribus.study.load import parse_study
from paribus.study.study import Study


def is_open(study: Study) -> bool:
    """Return True if the precision is not settled yet; such a study is not trained."""
    return study.training.precision == "auto"


def with_precision(study: Study, precision: str) -> Study:
    """Return `study` with `precision` instead of "auto".

    Raises ParibusError if no difference between arms remains.
    """
    if not is_open(study):
        return study
    table = study.model_dump()
    table["training"]["precision"] = precision
    label = f"{study.name}, whose precision 'auto' means {precision}"
    return parse_study(table, folder=study.folder, label=label, foreign=study.is_foreign)
