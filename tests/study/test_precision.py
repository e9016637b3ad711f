"""A precision that is left open: settled by one function, and then as if it had been written."""

import pytest

from paribus.engine.setting import is_open, with_precision

from ..tools import refused

AUTO = {"training.precision": "auto"}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_auto_settled_is_the_study_that_states_it(small_study, precision):
    settled = with_precision(small_study(AUTO), precision)
    stated = small_study({"training.precision": precision})
    assert is_open(small_study(AUTO)) and not is_open(settled)
    assert settled == stated
    assert settled.digest == stated.digest != small_study(AUTO).digest
    assert settled.folder == stated.folder
    assert {settled.setting(arm).training.precision for arm in settled.arms} == {precision}


def test_an_arm_may_state_another_precision(small_study):
    arms = {"baseline": {}, "exact": {"set": {"training.precision": "float32"}}}
    training = {"iterations": 8, "batch_size": 4, "precision": "auto"}
    study = small_study(arms=arms, training=training)
    settled = with_precision(study, "bfloat16")
    assert settled.differences("exact") == {"training.precision": ("bfloat16", "float32")}
    # Where auto means just that, nothing is left to compare.
    with refused("conflict", match="'exact'"):
        with_precision(study, "float32")
