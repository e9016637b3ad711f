"""`training.precision = "auto"`: a study leaves its precision open until it is registered."""

from __future__ import annotations

from paribus.study.load import parse_study
from paribus.study.study import Study


def is_open(study: Study) -> bool:
    """Return whether the precision is still to be settled; such a study is not trained."""
    return study.training.precision == "auto"


def with_precision(study: Study, precision: str) -> Study:
    """`study` as it is, or with `precision` where it says "auto".

    Raises ParibusError where nothing is left then that sets an arm apart.
    """
    if not is_open(study):
        return study
    table = study.model_dump()
    table["training"]["precision"] = precision
    label = f"{study.name}, whose precision 'auto' means {precision}"
    return parse_study(table, folder=study.folder, label=label, foreign=study.is_foreign)
