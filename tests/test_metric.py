"""A number as it is declared, and as it is shown: shares as per cent."""

from __future__ import annotations

import math

from paribus.metric import Metric

LOSS = Metric("loss", "loss", "nats/token", "lower", "evaluation")
SHARE = Metric("accuracy", "accuracy", "share", "higher", "evaluation")
SPEED = Metric("speed", "speed", "tokens/s", "higher", "turns", digits=0, scale="log")


def test_shares_are_shown_as_per_cent() -> None:
    assert SHARE.title == SHARE.short_title == "accuracy (%)"
    assert SHARE.change_title == "accuracy (percentage points)"
    assert SHARE.value_text(0.81234) == "81.23"
    assert SHARE.mean_text(0.5, 0.0125) == "50.00 (1.25)"
    assert SHARE.delta_text(0.0082, -0.0012, 0.0177) == "+0.82 [-0.12, +1.77]"
    assert SHARE.stated_text(0.005) == "0.5 percentage points"


def test_what_is_no_share_is_shown_as_it_is() -> None:
    assert (LOSS.title, LOSS.short_title) == ("loss (nats/token)", "loss")
    assert LOSS.value_text(1.87301) == "1.8730"
    assert LOSS.delta_text(-0.0359, -0.047, -0.0248) == "-0.0359 [-0.0470, -0.0248]"
    assert LOSS.size_text(0.02) == "0.0200"
    assert LOSS.stated_text(0.02) == "0.02"
    assert SPEED.stated_text(0.05) == "5%"
    assert SPEED.change_text(math.log(1.05)) == "+0.0488"
