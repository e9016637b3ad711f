"""`--budget` and `--max-trials`: a call that stops by itself, and can be continued."""

from __future__ import annotations

import signal
import time

import pytest

from paribus.cli.limits import Limits, Spent
from paribus.engine.execution.following import Progress
from paribus.errors import ParibusError


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400)])
def test_a_budget_has_a_unit(text, seconds) -> None:
    assert Limits(budget=text).seconds == seconds


@pytest.mark.parametrize("text", ["10", "m", "-1m", "0s", "1d", ""])
def test_what_is_no_budget(text) -> None:
    with pytest.raises(ParibusError):
        Limits(budget=text)


def test_the_clock_rings_and_is_put_back() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(Spent), Limits(budget="0.05s").clock():
        time.sleep(5)
    with Limits(budget="1h").clock():
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) == before


def progress(n_finished: int, n_trials: int = 6) -> Progress:
    return Progress(n_trials, n_finished, 0, 0, 0)


def test_trials_are_counted_from_the_first_word() -> None:
    """What was finished before counts for nothing; several runs of a call count together."""
    heard = []
    watch = Limits(max_trials=3).counting(heard.append)
    first = progress(2)
    watch(first)
    first.n_finished = 4
    watch(first)
    second = progress(0)
    watch(second)
    second.n_finished = 1
    with pytest.raises(Spent):
        watch(second)
    assert len(heard) == 4


def test_the_last_trial_stops_nothing() -> None:
    watch = Limits(max_trials=1).counting(lambda _: None)
    one = progress(0, 1)
    watch(one)
    one.n_finished = 1
    watch(one)
