"""A campaign of our own trainer: the sealed part is opened at the end alone."""

import json
from functools import partial
from pathlib import Path

import pytest

import paribus
from paribus.campaign import open_campaign, try_idea
from paribus.cli import main

from .. import tools

verb = partial(tools.verb, "campaign")

STUDY = """
name = "tiny"
seeds = [1, 2, 3, 4, 5]
endpoints = [{ metric = "validation_loss", primary = true, margin = 0.02 }]
data = { corpus = "pydoc", seq_len = 32, validation_tokens = 2048, test_fraction = 0.1 }
model = { n_layer = 1, n_head = 2, d_model = 32 }
training = { iterations = 60, batch_size = 8, precision = "float32", schedule = { warmup = 5 } }
tasks = { names = [] }
[arms.baseline]
"""


def stopped_after(n_finished: int):
    """Return a runner that is interrupted once so many trials of a stage are finished."""

    def watch(progress) -> None:
        if progress.n_finished >= n_finished:
            raise KeyboardInterrupt

    return partial(paribus.run, watch=watch)


HOT = ("--set", "training.optimizer.learning_rate=3e-3")
RATE = {"training.optimizer.learning_rate": 3e-3}


@pytest.mark.slow
def test_a_campaign_of_the_engine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(STUDY)
    assert verb("new", "night", "--baseline", "study.toml")[0] == 0
    # It stops in the screen, then in the confirmation, and comes to the same as in one go.
    for n_finished in (1, 3):
        with pytest.raises(KeyboardInterrupt):
            try_idea(open_campaign(Path("night"), stopped_after(n_finished)), "hot", RATE)
    code, out, _ = verb("try", "night", "hot", "--json")
    assert code == 0
    stopped = json.loads(out)["ideas"]["hot"]
    assert verb("new", "again", "--baseline", "study.toml")[0] == 0
    straight = json.loads(verb("try", "again", "hot", *HOT, "--json")[1])["ideas"]["hot"]
    assert stopped["confirm"] == straight["confirm"]
    assert len(list(Path("night/ideas").rglob("seed-*/manifest.json"))) == 14
    code, out, _ = verb("try", "night", "cold", "--set", "training.optimizer.learning_rate=1e-4")
    assert code == 10
    assert not list(Path("night").rglob("test_part.json"))
    # A stage that is run by itself opens nothing, though all of it is finished.
    confirm = Path("night/ideas/hot/confirm")
    assert main(["run", str(confirm / "study.json"), "--results", str(confirm)]) == 2
    assert not list(Path("night").rglob("test_part.json"))
    told = json.loads(verb("end", "night", "--json")[1])
    assert list(Path("night").rglob("test_part.json")) == [Path("night/final/test_part.json")]
    assert told["verdicts"]["hot"]["word"] == "BETTER"
    assert told["verdicts"]["hot"]["effect"] != stopped["confirm"]["effect"]
