"""A study with looks, trained for real: stopped between a look and its record, and continued."""

import pytest

import paribus
from paribus.analysis import analyse
from paribus.results import load_results
from paribus.runs import advance as looking
from paribus.verification import verify

from ..conftest import studies_in

pytestmark = pytest.mark.usefixtures("one_process")

ARMS = {
    "baseline": {},
    "slow": {"set": {"training.optimizer.learning_rate": 3e-4}},
    "again": {"set": {"model.init.salt": 1}},  # the baseline with other initial values
}
ENDPOINTS = [{"metric": "validation_loss", "primary": True, "margin": 0.001}]


class Killed(BaseException):
    """Stands for a signal that nobody catches."""


@pytest.fixture(scope="module")
def looked(tmp_path_factory):
    """Killed when the first look was decided and not yet written, and run again."""
    folder = tmp_path_factory.mktemp("looked")
    study = studies_in(folder)(
        {"model.n_layer": 1},
        arms=ARMS,
        endpoints=ENDPOINTS,
        training={"iterations": 16, "batch_size": 4, "optimizer": {"learning_rate": 1e-2}},
        seeds={"looks": [5, 6]},
        tasks={"names": []},
    )

    def killed(*_: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(looking, "append_look", killed)
        with pytest.raises(Killed):
            paribus.run(study, folder / "r", workers=1, stack=15)
    assert not (folder / "r" / "looks.json").exists()
    assert len(load_results(folder / "r").finished) == 15
    return study, paribus.run(study, folder / "r", workers=2)


def test_arms_are_trained_as_far_as_looks_need_them(looked):
    study, results = looked
    first = results.looks[0]["contrasts"]
    assert first["slow"]["decision"] == "effect"
    assert first["again"]["decision"] == "continue"
    counts = {arm: sum(a == arm for a, _ in results.trials) for arm in study.arms}
    assert counts == {"baseline": 6, "slow": 5, "again": 6}
    assert not results.unfinished and results.n_trials == 17
    timed = {(row["arm"], row["seed"]) for row in results.throughput.to_pylist()}
    assert timed == set(results.trials)
    assert analyse(results).contrast("slow", "validation_loss").sampling.look == 1


def test_running_it_again_trains_and_looks_no_more(looked):
    study, results = looked
    before = (results.path / "looks.json").read_bytes()
    again = paribus.run(study, results.path, workers=1)
    assert (results.path / "looks.json").read_bytes() == before
    assert len(again.finished) == 17
    assert verify(results.path).findings == []
