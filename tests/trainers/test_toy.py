"""A trainer that is not ours goes the whole way, from TOML to verdict, without PyTorch."""

import json
import shutil
from pathlib import Path

import pytest

import paribus
from paribus.results import ResultsFolder

from ..tools import refused, verb

pytestmark = pytest.mark.usefixtures("one_process")

TOY = Path(__file__).with_name("toy.py")
STUDY = """
name = "toy"
trainer = "toy.py:Toy"
question = "Does the shift lower the loss?"
seeds = { looks = [5, 8] }

[toy]
shift = 0.0
rate = 2.0
text = "a"

[[endpoints]]
metric = "loss"
primary = true
margin = 0.02

[[endpoints]]
metric = "hits"

[[endpoints]]
metric = "size"

[arms.baseline]

[arms.shifted]
set = { "toy.shift" = 0.05 }

[arms.hot]
set = { "toy.shift" = 1.5 }

[arms.other]
set = { "toy.text" = "b" }

[inference]
target = "new items"

[tuning]
seeds = [101, 102, 103]
grid = { "toy.rate" = [0.5, 1.0, 2.0] }
select = "loss"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the study and its trainer."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(TOY, tmp_path / "toy.py")
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def test_a_study_of_another_trainer_goes_the_whole_way(folder):
    code, out, err = verb("run", "study.toml", "--results", "r", "--no-pdf")
    assert code == 0, err
    results = paribus.load_results("r")
    analysis = paribus.analyse(results)
    # Tuned to the best of three rates, by the loss.
    # The vertex beside the best value, of which the noise moves little.
    assert [v["toy.rate"] for v in results.study.tuning.chosen.values()] == pytest.approx(
        [1.0] * len(results.study.arms), abs=0.01
    )
    # An arm that gains 0.05 with an SD of differences of 0.003 is resolved at the first look.
    shifted = next(c for c in analysis.contrasts if (c.arm, c.metric) == ("shifted", "loss"))
    assert shifted.seeds == (1, 2, 3, 4, 5)
    assert shifted.decided is not None and abs(shifted.decided.mean + 0.05) < 0.01
    # What is measured by item is tested over seeds and items.
    hits = next(c for c in analysis.contrasts if (c.arm, c.metric) == ("shifted", "hits"))
    assert hits.items_about == "40 items"
    # Seed 3 of an arm diverged: it is left out by name.
    assert [o.seed for o in analysis.left_out if o.metric == "loss"] == [3]
    states = {(c.arm, c.name): c.state for c in analysis.controls}
    assert states["shifted", "setting"] == states["shifted", "text"] == "held"
    assert states["other", "text"] == "declared"
    assert states["shifted", "weights"] == "not proven"  # declared, and recorded nowhere
    verdicts = {v.arm: v for v in paribus.decide(analysis)}
    found = {arm: (verdict.word, verdict.outcome) for arm, verdict in verdicts.items()}
    assert found["shifted"] == ("BETTER", "ADOPT") and found["other"] == ("SAME", "NO EFFECT")
    assert "BETTER" in out and "SAME" in out
    for name in ("report.html", "verdict.json", "analysis.json"):
        assert (folder / "r" / name).stat().st_size > 0
    assert "toy loss" in (folder / "r" / "report.html").read_text()
    code, out, err = verb("verify", "r")
    assert code == 0, out + err
    # A second run finds nothing to do, and another study is refused.
    assert verb("run", "study.toml", "--results", "r", "--no-pdf")[0] == 0
    (folder / "study.toml").write_text(STUDY.replace("shift = 0.0\n", "shift = 0.1\n"))
    code, _, err = verb("run", "study.toml", "--results", "r", "--no-pdf")
    assert code == 2 and "different study" in err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("toy.py:Toy", "stackd"), "'stacked'"),
        (('metric = "hits"', 'metric = "hit"'), "'hits'"),
        (('select = "loss"', 'select = "size"'), "better direction"),
    ],
)
def test_mistakes_are_one_line(folder, change, words):
    (folder / "study.toml").write_text(STUDY.replace(*change))
    code, _, err = verb("run", "study.toml", "--results", "r", "--no-pdf")
    assert code == 2 and words in err and err.count("\n") == 1
    assert not (folder / "r").exists()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"size": 1.0}', '"sizes": 1.0}', "'size'"),
        ('{"hits": hits}', '{"loss": hits}', "by_item"),
        ("for arm, seed in trials:", "for arm, seed in trials[1:]:", "record"),
        ('"rate": toy["rate"]}', '"rats": toy["rate"]}', "'rate'"),
        ("(arm, seed),\n", "(arm, 77),\n", "not requested"),
    ],
)
def test_records_that_were_not_declared_are_refused(folder, old, new, words):
    text = (folder / "toy.py").read_text()
    assert old in text
    (folder / "toy.py").write_text(text.replace(old, new))
    with refused("value", match=words):
        paribus.run(paribus.load_study(folder / "study.toml"), folder / "r")


def test_a_trial_that_fails_costs_the_others_nothing(folder):
    text = (folder / "toy.py").read_text()
    line = "            toy = study.setting(arm).toy\n"
    fails = (
        "            assert (arm, seed) != ('hot', 2) or not __import__('os').path.exists('fail')\n"
    )
    (folder / "toy.py").write_text(text.replace(line, line + fails))
    (folder / "fail").touch()
    study = (folder / "study.toml").read_text().partition("[tuning]")[0]
    (folder / "study.toml").write_text(study)
    with refused("value", match="hot/seed-2"):
        paribus.run(paribus.load_study("study.toml"), "r")
    before = {p: p.read_bytes() for p in sorted((folder / "r").rglob("*.json"))}
    assert len([p for p in before if p.name == "manifest.json"]) == 6
    (folder / "fail").unlink()
    paribus.run(paribus.load_study("study.toml"), "r")
    assert all(p.read_bytes() == content for p, content in before.items() if "trials" in p.parts)
    (folder / "toy.py").write_text(text.replace("0.002", "0.003"))
    code, _, err = verb("run", "study.toml", "--results", "r", "--no-pdf")
    assert code == 2 and "toy.py" in err


def test_a_strangers_folder_runs_nothing(folder):
    (folder / "study.toml").write_text(STUDY.partition("[tuning]")[0])
    assert verb("run", "study.toml", "--results", "r", "--no-pdf")[0] == 0
    (folder / "r" / "sources" / "toy.py").write_text("raise SystemExit('executed')")
    (folder / "toy.py").unlink()
    code, out, err = verb("report", "--no-page", "r")
    assert code in (0, 2) and "executed" not in out + err
    record = json.loads((folder / "r" / "registration.json").read_text())
    assert record["trainer"]["controls"]["text"] == ["toy.text"]
    assert ResultsFolder(folder / "r").exists
