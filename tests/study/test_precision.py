"""A precision that is left open: settled by one function, and then as if it had been written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paribus.errors import ParibusError
from paribus.study import Study, is_open, with_precision

Maker = Callable[..., Study]
AUTO = {"training.precision": "auto"}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_auto_settled_is_the_study_that_states_it(small_study: Maker, precision: str) -> None:
    settled = with_precision(small_study(AUTO), precision)
    stated = small_study({"training.precision": precision})
    assert is_open(small_study(AUTO)) and not is_open(settled)
    assert settled == stated
    assert settled.digest == stated.digest != small_study(AUTO).digest
    assert settled.folder == stated.folder
    assert {settled.setting(arm).training.precision for arm in settled.arms} == {precision}


def test_a_precision_that_is_stated_stays(small_study: Maker) -> None:
    stated = small_study({"training.precision": "bfloat16"})
    assert with_precision(stated, "float32") is stated


def test_an_arm_may_state_another_precision(small_study: Maker) -> None:
    arms = {"baseline": {}, "exact": {"set": {"training.precision": "float32"}}}
    training = {"iterations": 8, "batch_size": 4, "precision": "auto"}
    study = small_study(arms=arms, training=training)
    settled = with_precision(study, "bfloat16")
    assert settled.differences("exact") == {"training.precision": ("bfloat16", "float32")}
    # Where auto means just that, nothing is left to compare.
    with pytest.raises(ParibusError, match="'auto' means float32: arm 'exact' does not differ"):
        with_precision(study, "float32")
