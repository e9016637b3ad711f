"""Campaigns: what is counted, what is shared, and what becomes of an idea that is interrupted."""

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from paribus.campaign import begin, end, open_campaign, try_idea
from paribus.errors import ParibusError
from paribus.results import load_results
from paribus.statistics import Lord

from .. import tools
from ..tools import refused
from .stopping import stopped_after

verb = partial(tools.verb, "campaign")

pytestmark = pytest.mark.usefixtures("one_process")

STUDY = """
name = "toy"
trainer = "trainer.py:Toy"
question = "Which change lowers the loss?"
seeds = [1, 2, 3, 4, 5, 6]
endpoints = [{ metric = "loss", primary = true, margin = 0.02 }]

[toy]
gain = 0.0
noise = 0.01
fails = false
diverges = false

[arms.baseline]

[arms.else]
set."toy.gain" = 9.0
"""
GOOD, BAD = {"toy.gain": 0.1}, {"toy.gain": -0.1}
# Better at the two seeds of the screen, and not told apart at six others.
SLIGHT = {"toy.gain": 0.006}


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(Path(__file__).with_name("trainer.py"), tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    return begin(tmp_path / "night", "study.toml")


def trained(folder: Path) -> list[str]:
    return (folder.parent / "trained.txt").read_text().splitlines()


def test_levels_follow_the_rule_and_only_tests_have_one(campaign):
    assert try_idea(campaign, "bad", BAD).state == "dropped"
    assert campaign.tested == []
    first = try_idea(campaign, "good", GOOD)
    second = try_idea(campaign, "slight", SLIGHT)
    third = try_idea(campaign, "better", {"toy.gain": 0.2})
    assert [one.state for one in (first, second, third)] == ["kept", "not kept", "kept"]
    # By the rule alone, from the p-values.
    p = [one.confirm["p"] for one in (first, second, third)]
    found = [True, False, True]
    levels = np.array([one.level for one in (first, second, third)], float)
    np.testing.assert_allclose(levels, [Lord().next_level(found[:k]) for k in range(3)])
    assert (p <= levels).tolist() == found
    assert campaign.next_level == pytest.approx(Lord().next_level([True, False, True]))
    # The p is that of the study's own registered test.
    from paribus.analysis import analyse

    confirmed = analyse(load_results(campaign.results_of("good", "confirm"), trust=True))
    assert confirmed.contrast("good").p == first.confirm["p"]
    assert set(confirmed.study.seeds).isdisjoint(campaign.screen_seeds)


def test_the_baseline_is_trained_once(campaign):
    for name, gain in {"a": 0.1, "b": 0.2, "c": 0.3}.items():
        try_idea(campaign, name, {"toy.gain": gain})
    lines = trained(campaign.path)
    assert len(lines) == len(set(lines)) == 4 * (2 + 6)  # three ideas and the baseline


def test_a_failed_idea_is_counted_and_an_unfinished_one_stops_no_other(campaign):
    with refused("value", match="it fails"):
        try_idea(campaign, "broken", {"toy.fails": True})
    assert campaign.ideas["broken"].state == "failed"
    with pytest.raises(KeyboardInterrupt):
        try_idea(campaign, "killed", {"toy.gain": 0.3}, run=stopped_after(1))
    assert try_idea(campaign, "good", GOOD).state == "kept"
    assert list(campaign.ideas) == ["broken", "killed", "good"]
    end(campaign)
    assert list(campaign.verdicts) == ["good"]
    assert campaign.ideas["killed"].state == "screening"


def test_an_idea_that_goes_on_is_not_closed_by_a_slip(campaign):
    with pytest.raises(KeyboardInterrupt):
        try_idea(campaign, "x", GOOD, run=stopped_after(1))
    text = Path("trainer.py").read_text()
    Path("trainer.py").write_text(text + "def typo(")
    with refused("value", match="trainer"):
        try_idea(campaign, "x")
    assert campaign.ideas["x"].state == "screening"
    Path("trainer.py").write_text(text)
    assert try_idea(campaign, "x").state == "kept"


def test_an_interrupted_idea_goes_on_and_comes_to_the_same(campaign, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        try_idea(campaign, "x", GOOD, run=stopped_after(1))
    again = try_idea(open_campaign(campaign.path), "x")
    straight = try_idea(begin(tmp_path / "other", "study.toml"), "x", GOOD)
    assert again.state == straight.state == "kept"
    assert again.confirm == straight.confirm
    assert len(set(trained(campaign.path))) == 16
    # An unfinished idea that came to its test keeps its place, as one that was not kept.
    third = begin(tmp_path / "third", "study.toml")
    with pytest.raises(KeyboardInterrupt):
        try_idea(third, "x", GOOD, run=stopped_after(1))
    third.tested.append("x")
    assert third.next_level == pytest.approx(Lord().next_level([False]))


def test_an_idea_that_diverges_is_not_kept(campaign):
    found = try_idea(campaign, "wild", {"toy.gain": 0.1, "toy.diverges": True})
    assert found.state == "not kept"
    assert "1 of 6 pairs" in found.why and "wild diverged" in found.why


def test_the_end_is_once_and_of_those_that_stand(campaign):
    try_idea(campaign, "bad", BAD)
    try_idea(campaign, "good", GOOD)
    before = trained(campaign.path)
    end(campaign)
    assert list(campaign.verdicts) == ["good"]
    assert campaign.verdicts["good"]["word"] == "BETTER"
    assert not campaign.opened  # this trainer seals no text
    assert trained(campaign.path) == before
    once = (campaign.path / "campaign.json").read_bytes()
    end(campaign)
    assert (campaign.path / "campaign.json").read_bytes() == once
    told = json.loads((campaign.path / "final/verdict.json").read_text())["verdicts"]
    assert [(one["arm"], one["word"]) for one in told] == [("good", "BETTER")]
    with refused("value", match="campaign"):
        load_results(campaign.path)
    with refused("value", match="has ended"):
        try_idea(campaign, "late", GOOD)


def test_what_is_refused_is_not_counted(campaign):
    try_idea(campaign, "good", GOOD)
    for name, arm in {
        "good": BAD,  # another idea of the same name
        "same": GOOD,  # the same idea by another name
        "none": {},
        "unknown": {"toy.gian": 1.0},
        "no/name": {"toy.gain": 1.0},
        "baseline": {"toy.gain": 1.0},
    }.items():
        with pytest.raises(ParibusError):
            try_idea(campaign, name, arm)
    assert list(campaign.ideas) == ["good"]


def test_the_verbs(campaign):
    night = campaign.path
    assert verb("try", night, "good", "--set", "toy.gain=0.1")[0] == 0
    code, out, _ = verb("try", night, "bad", "--set", "toy.gain=-0.1", "--json")
    assert code == 10
    assert json.loads(out)["states"] == {"kept": 1, "dropped": 1}
    assert verb("status", night)[0] == 0
    assert verb("end", night)[0] == 0
    told = json.loads(verb("status", night, "--json")[1])
    assert told["verdicts"]["good"]["word"] == "BETTER"


@pytest.mark.parametrize(
    "words",
    [
        ("new", "night", "--baseline", "study.toml"),
        ("new", "d", "--baseline", "study.toml", "--screen-seeds", "1"),
        ("new", "d", "--baseline", "study.toml", "--alpha", "2"),
        ("new", "d", "--baseline", "study.toml", "--screen-iterations", "10"),
        ("new", "d", "--baseline", "quickstart"),
        ("new", "d", "--baseline", "study.toml", "--set", "seeds=[1, 2]"),
        ("status", "nowhere"),
        ("try", "night", "x"),
        ("try", "night", "x", "--set", "toy.gain=1.0", "--workers", "0"),
        ("try", "night", "x", "--set", "toy.gian=1.0"),
        ("try", "night", "x", "--set", "toy.gain"),
    ],
)
def test_bad_input_is_a_line_and_leaves_nothing(campaign, words):
    code, out, err = verb(*words)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert not Path("d").exists()
    assert not campaign.ideas
