"""Campaigns: what is counted, what is shared, and what becomes of an idea that is interrupted."""

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from paribus.analysis import analyse
from paribus.campaign import begin, end, open_campaign, try_idea as try_for_real
from paribus.errors import ParibusError
from paribus.results import load_results
from paribus.statistics import Lord

from .. import tools
from ..build import register_here, run_here
from ..tools import refused

verb = partial(tools.verb, "campaign")

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


def stopping(study, folder, **options):
    return run_here(study, folder, stops_after=1)


def try_idea(campaign, name, overrides=None, run=run_here):
    campaign._run, campaign._register = run, register_here
    return try_for_real(campaign, name, overrides)


def trained(folder: Path) -> list[str]:
    return (folder.parent / "trained.txt").read_text().splitlines()


def test_a_night(campaign):
    assert try_idea(campaign, "bad", BAD).state == "dropped"
    assert campaign.tested == []
    tried = [
        try_idea(campaign, name, arm)
        for name, arm in {"good": GOOD, "slight": SLIGHT, "better": {"toy.gain": 0.2}}.items()
    ]
    # Levels follow the rule alone, from the p-values, and only tests have one.
    p, kept = [idea.confirm["p"] for idea in tried], [idea.state == "kept" for idea in tried]
    levels = np.array([idea.level for idea in tried], float)
    np.testing.assert_allclose(levels, [Lord().next_level(kept[:k]) for k in range(3)])
    assert (p <= levels).tolist() == kept == [True, False, True]
    assert campaign.next_level == pytest.approx(Lord().next_level(kept))
    # The p is that of the study's own registered test, on seeds of its own.
    confirmed = analyse(load_results(campaign.results_of("confirm", "good").path, trust=True))
    assert confirmed.contrast("good").p == p[0]
    screened = load_results(campaign.results_of("screen", "good").path, trust=True)
    assert set(confirmed.study.seeds).isdisjoint(screened.study.seeds)
    # The baseline is trained once: that of the screen, and that of the confirmation.
    before = trained(campaign.path)
    assert len(before) == len(set(before)) == 5 * 2 + 4 * 6
    # The end is once, and of those that are kept.
    end(campaign)
    assert trained(campaign.path) == before
    once = (campaign.path / "campaign.json").read_bytes()
    assert verb("end", campaign.path)[0] == 0
    assert (campaign.path / "campaign.json").read_bytes() == once
    stated = json.loads(verb("status", campaign.path, "--json")[1])
    assert {name: v["word"] for name, v in stated["verdicts"].items()} == {
        "good": "BETTER",
        "better": "BETTER",
    }
    with refused("value", match="has ended"):
        try_idea(open_campaign(campaign.path), "late", GOOD)


def test_an_interrupted_idea_goes_on_and_comes_to_the_same(campaign, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        try_idea(campaign, "x", GOOD, run=stopping)
    text = Path("trainer.py").read_text()
    Path("trainer.py").write_text(text + "def typo(")
    with refused("value", match="trainer"):
        try_idea(campaign, "x")
    assert campaign.ideas["x"].state == "screening"
    Path("trainer.py").write_text(text)
    assert try_idea(campaign, "bad", BAD).state == "dropped"  # it keeps no other from being tried
    again = try_idea(open_campaign(campaign.path), "x")
    straight = try_idea(begin(tmp_path / "other", "study.toml"), "x", GOOD)
    assert again.state == straight.state == "kept"
    assert again.confirm == straight.confirm
    # An unfinished idea that came to its test keeps its place, as one that was not kept.
    campaign.tested.append("bad")
    assert campaign.next_level == pytest.approx(Lord().next_level([False]))


def test_an_idea_that_diverges_is_not_kept(campaign):
    idea = try_idea(campaign, "wild", {"toy.gain": 0.1, "toy.diverges": True})
    assert idea.state == "not kept"
    assert "1 of 6 pairs" in idea.why and "wild diverged" in idea.why


def test_what_is_refused_is_not_counted(campaign):
    try_idea(campaign, "bad", BAD)
    for name, arm in {
        "bad": GOOD,  # another idea of the same name
        "same": BAD,  # the same idea by another name
        "none": {},
        "unknown": {"toy.gian": 1.0},
        "no/name": {"toy.gain": 1.0},
        "baseline": {"toy.gain": 1.0},
    }.items():
        with pytest.raises(ParibusError):
            try_idea(campaign, name, arm)
    assert list(campaign.ideas) == ["bad"]


@pytest.mark.parametrize(
    "words",
    [
        ("new", "night", "--baseline", "study.toml"),
        ("new", "d", "--baseline", "study.toml", "--alpha", "2"),
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
