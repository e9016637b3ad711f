"""Own code of a finished trial that is asked for more: it could have waited for that."""

from __future__ import annotations

from collections.abc import Collection

from paribus.engine.data import Dataset
from paribus.engine.execution.checks.causality import NotCausalError, require_causal_reading
from paribus.engine.execution.checks.shapes import Shape
from paribus.engine.model import GPT
from paribus.errors import ParibusError
from paribus.results import TrialFolder
from paribus.study import Setting
from paribus.study.guard import Watched, require_unchanged


def require_same_text(dataset: Dataset, where: str) -> None:
    """Raise ParibusError where the held-out tokens are not those that were read."""
    if not dataset.holds_out_the_same:
        raise ParibusError(
            f"{where} was evaluated on other held-out text than was read: code of yours changed it "
            "while the trial ran; leave the text alone"
        )


def require_as_recorded(
    where: str,
    trial: TrialFolder,
    model: GPT,
    setting: Setting,
    dataset: Dataset,
    before: Watched,
    shapes: Collection[Shape],
) -> None:
    """Raise ParibusError where `model`, of `trial`, now looks ahead in the held-out text of
    `dataset`, or changed it, or replaced what was watched `before`.

    It has read texts in `shapes`. A trial that had diverged, so that nothing could be shown of its
    predictions when it was recorded, may be as it was.
    """
    require_same_text(dataset, where)
    try:
        require_causal_reading(where, model, setting, dataset, brief=True, shapes=shapes)
    except NotCausalError:
        if "not_proven" not in trial.read_json("trial.json")["causality"]:
            raise
    require_unchanged(before, f"evaluating {where}")
