"""Looks at the records of a study: what they decide, and what the analysis makes of them."""

import json
import shutil

import pytest

from paribus.analysis import Table, analyse, next_look
from paribus.decision import decide
from paribus.report.tables import looks_table
from paribus.results import (
    ResultsFolder,
    append_look,
    load_results,
    needed_trials,
    read_looks,
)
from paribus.rng import stream
from paribus.statistics import Looks, OneLook, holm, paired_t
from paribus.verification import verify

from ..build import write_results
from ..conftest import studies_in
from ..tools import codes

ARMS = {
    "baseline": {},
    "layernorm": {"set": {"model.embedding.norm": "layernorm"}},
    "rmsnorm": {"set": {"model.embedding.norm": "rmsnorm"}},
    "center": {"set": {"model.embedding.norm": "center"}},
}
LOOKS = {"looks": [5, 6, 8]}


def losses(effects, spread=0.004):
    """A loss for every trial: a shared part of the seed, the arm's effect, and noise."""

    def loss(arm, seed):
        noise = stream(seed, arm, "noise").normal(0, spread)
        shared = stream(seed, "shared").normal(0, 0.1)
        return 2.0 + shared + effects.get(arm, 0.0) + noise

    return loss


def trained(study, path, loss):
    """What `run` does, without training: up to a look, then the look, until none is left."""
    while True:
        folder = ResultsFolder(path)
        needed = needed_trials(study, read_looks(folder) if folder.exists else [])
        done = {t for t in study.trials if folder.trial(*t).is_finished}
        skip = [t for t in study.trials if t not in needed or t in done]
        results = write_results(path, study, loss, skip=skip)
        entry = next_look(Table.from_results(results))
        if entry is None:
            return results
        append_look(ResultsFolder(path), entry)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A large effect, one within the margin, and one at it: three contrasts that end apart."""
    folder = tmp_path_factory.mktemp("looked")
    study = studies_in(folder)(arms=ARMS, seeds=LOOKS)
    loss = losses({"layernorm": 1.0, "rmsnorm": 0.0, "center": 0.02}, spread=0.004)
    return trained(study, folder / "r", loss).path


@pytest.fixture
def looked(made, tmp_path):
    """A copy of it, to be written to."""
    return load_results(shutil.copytree(made, tmp_path / "looked"))


def test_contrasts_stop_apart_and_arms_go_on_as_long_as_they_are_needed(looked):
    study, looks = looked.study, looked.looks
    stops = {
        arm: next(e["look"] for e in looks if e["contrasts"][arm]["decision"] != "continue")
        for arm, _ in study.contrasts
    }
    assert stops["layernorm"] < stops["center"]
    seeds = {arm: sum(a == arm for a, _ in looked.trials) for arm in study.arms}
    for arm, look in stops.items():
        assert seeds[arm] == study.plan.looks[look - 1]
    assert seeds["baseline"] == max(seeds.values())
    assert not looked.unfinished
    decisions = {arm: said["decision"] for arm, said in looks[-1]["contrasts"].items()}
    assert decisions["layernorm"] == "effect"
    assert decisions["rmsnorm"] == "equivalence"


def test_skewed_differences_that_stopped_a_study_are_warned_of(small_study, tmp_path):
    study = small_study(arms={name: ARMS[name] for name in ("baseline", "layernorm")}, seeds=LOOKS)
    for apart, is_skewed in ((0.0, False), (0.2, True)):  # of one seed

        def loss(arm, seed, apart=apart):
            effect = -1.0 + 0.001 * seed - apart * (seed == study.seeds[1])
            return 3.0 + effect * (arm == "layernorm")

        analysis = analyse(trained(study, tmp_path / str(apart), loss))
        assert analysis.contrasts[0].sampling.decision == "effect"
        assert ("skewed" in codes(decide(analysis))) == is_skewed


def test_what_decides_is_the_test_over_all_looks(looked):
    analysis, plan = analyse(looked), Looks((5, 6, 8))
    assert not analysis.unregistered and not analysis.missing
    contrasts = [analysis.contrast(arm, "validation_loss") for arm, _ in looked.study.contrasts]
    p_values = []
    for contrast in contrasts:
        look = contrast.sampling.look
        assert contrast.seeds == looked.study.seeds[: plan.pairs[look - 1]]
        test = paired_t([pair.delta for pair in contrast.by_run.pairs])
        expected = OneLook(plan, look - 1).decide(lambda _, test=test: test)
        assert contrast.decided.p_value == pytest.approx(expected.p_value())
        assert contrast.decided.interval.low == pytest.approx(expected.interval().low)
        p_values.append(contrast.decided.p_value)
    assert [c.holm_p for c in contrasts] == pytest.approx(holm(p_values).tolist())
    assert json.loads(json.dumps(analysis.to_dict()))["looks"] == list(looked.looks)
    verdicts = {verdict.arm: verdict for verdict in decide(analysis)}
    words = {arm: verdict.word for arm, verdict in verdicts.items()}
    assert (words["layernorm"], words["rmsnorm"]) == ("WORSE", "SAME")
    stop = analysis.contrast("layernorm", "validation_loss").sampling
    assert stop.look in (1, 2, 3)


def test_an_endpoint_that_an_early_look_resolved_stays_resolved(small_study, tmp_path):
    plan = {"looks": [5, 6, 8]}
    judged = [
        {"metric": "validation_loss", "primary": True, "margin": 0.01},
        {"metric": "validation_accuracy", "primary": True, "margin": 0.0001},
    ]
    arms = {arm: ARMS[arm] for arm in ("baseline", "layernorm")}
    study = small_study(
        {"inference.target": "this item set"}, arms=arms, seeds=plan, endpoints=judged
    )

    def loss(arm, seed):
        then = 1.0 if seed <= 5 else -9.0
        return 12.0 + (then if arm == "layernorm" else 0.0) + 0.001 * seed * (arm == "layernorm")

    results = trained(study, tmp_path / "r", loss)
    first, *later = results.looks
    assert len(later) == 2 and first["contrasts"]["layernorm"]["decision"] == "continue"
    said = first["contrasts"]["layernorm"]["endpoints"]
    assert said["validation_loss"]["resolved"] == "effect"
    assert said["validation_accuracy"]["resolved"] is None
    for entry in later:  # it is not tested again
        assert entry["contrasts"]["layernorm"]["endpoints"].keys() == {"validation_accuracy"}
    analysis = analyse(results)
    assert not analysis.unregistered
    kept = analysis.contrast("layernorm", "validation_loss")
    assert kept.seeds == (1, 2, 3, 4, 5) and kept.significant(0.05) and kept.decided.mean > 0
    assert (kept.sampling.look, kept.sampling.decision) == (1, "effect")
    shown = looks_table(analysis)
    assert [(row[0], row[3], row[-1]) for row in shown.rows] == [
        ("1", "next-token accuracy (%)", "continue"),
        ("1", "validation loss", "effect"),
        ("2", "next-token accuracy (%)", "continue"),
        ("3", "next-token accuracy (%)", "open"),
    ]
    other = analysis.contrast("layernorm", "validation_accuracy")
    assert other.seeds == study.seeds and not other.significant(0.05)
    all_seeds = paired_t([loss("layernorm", s) - loss("baseline", s) for s in study.seeds])
    assert all_seeds.p_value() > 0.05  # what would have been said without its memory
    verdict = next(v for v in decide(analysis) if v.metric == "validation_loss")
    assert verdict.word == "WORSE"


def test_trials_beyond_a_look_do_not_count_before_it_is_taken(small_study, tmp_path):
    study = small_study(arms=ARMS, seeds=LOOKS)
    none = write_results(tmp_path / "r", study, losses({}), skip=study.trials[-1:])
    contrast = analyse(none).contrast("layernorm", "validation_loss")
    assert contrast.by_run is None
    assert "first look" in contrast.why_not
    few = write_results(tmp_path / "few", study, losses({}), skip=study.trials[8:])
    assert next_look(Table.from_results(few)) is None  # the first look lacks trials


@pytest.mark.parametrize("key", ["p", "trials"])
def test_looks_that_trials_contradict_are_invalid(looked, key):
    path = looked.path / "looks.json"
    there = json.loads(path.read_text())
    first = there["looks"][0]
    if key == "trials":
        first["trials"] = "0" * 64
    else:
        first["contrasts"]["center"]["endpoints"]["validation_loss"][key] = 0.5
    folder = ResultsFolder(looked.path)
    with folder.sealing("looks.json"):
        path.write_text(json.dumps(there))
    analysis = analyse(load_results(looked.path))
    assert "looks.json" in analysis.unregistered
    assert {verdict.outcome for verdict in decide(analysis)} == {"INVALID"}
    assert any("looks.json" in line for line in verify(looked.path).findings)


def test_a_look_at_quality_does_not_end_a_study_of_instability(small_study, tmp_path):
    """A baseline that diverges in 4 of 5 seeds: five cannot show a cure, and more can."""
    arms = {arm: ARMS[arm] for arm in ("baseline", "layernorm")}
    study = small_study(arms=arms, seeds=LOOKS)
    skip = study.trials[2 * 5 :]
    for lost, decision in (([1, 2, 4, 5], "continue"), ([], "equivalence")):
        diverged = [("baseline", seed) for seed in lost]
        results = write_results(
            tmp_path / decision, study, losses({}, 1e-6), skip=skip, diverged=diverged
        )
        entry = next_look(Table.from_results(results))
        assert entry["contrasts"]["layernorm"]["decision"] == decision
