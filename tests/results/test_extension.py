"""More seeds later: a second stage that is registered before it runs, and how it counts."""

import json
from dataclasses import replace

import numpy as np
import pytest

from paribus.analysis import Table, analyse
from paribus.analysis.side_effects import stabilities_of
from paribus.decision import decide
from paribus.files import file_digest
from paribus.results import ResultsFolder, archive, extend, extended, load_results
from paribus.results.formats import read_json, write_json
from paribus.rng import stream
from paribus.statistics import (
    Stages,
    combined_mcnemar,
    mcnemar,
    paired_t,
    stage_weights,
)
from paribus.study import first_stage
from paribus.verification.verify import registration_findings

from ..build import write_results
from ..tools import refused, texts

SEEDS = [1, 2, 3, 4, 5]
FIXED = {"inference.target": "this item set"}


def loss(arm, seed):
    """An effect that five pairs do not resolve."""
    effect = 0.02 if arm != "baseline" else 0.0
    shared = stream(seed, "shared").normal(0, 0.1)
    return 2.0 + shared + effect + stream(seed, arm, "noise").normal(0, 0.02)


@pytest.fixture
def first(small_study, fabricate):
    return fabricate(small_study(FIXED, seeds=SEEDS), loss)


def test_a_second_stage_is_registered_under_the_first(first):
    before = json.loads((first.path / "registration.json").read_text())
    whole = extend(first.path, 10)
    assert whole.stages == (5, 10) and whole.seeds == tuple(range(1, 16))
    after = json.loads((first.path / "registration.json").read_text())
    assert json.loads((first.path / "registration-1.json").read_text()) == before
    assert after["supersedes"] == file_digest(first.path / "registration-1.json")
    assert after["number"] == 2 and after["study_digest"] == whole.digest
    assert after["stages"]["seeds"] == [5, 10]
    assert after["stages"]["weights"] == pytest.approx(stage_weights(0.5))
    assert len(after["results_when_registered"]) == 15
    results = load_results(first.path)
    assert [t.seed for t in results.unfinished[:3]] == [6, 6, 6]
    change = analyse(results).contrast("layernorm", "validation_loss")
    assert change.why_not == "no finished seed pair in the second stage; inference needs two"
    assert extend(first.path, 0).stages == ()  # nothing of it ran
    assert json.loads((first.path / "registration.json").read_text()) == before


def test_another_source_than_the_first_stage_s_is_refused_before_anything_is_written(first):
    path = first.path / "registration.json"
    record = read_json(path)
    write_json(path, record | {"code": "0" * 64})
    before = {file: file.read_bytes() for file in first.path.glob("*.json")}
    with refused("value", match="another version"):
        extend(first.path, 10)
    assert {file: file.read_bytes() for file in first.path.glob("*.json")} == before


def test_stages_are_combined_with_the_weights_that_were_registered(first, small_study):
    whole = extend(first.path, 10)
    skip = [trial for trial in whole.trials if trial[1] <= 5]
    study = small_study(FIXED, seeds=SEEDS)
    both = write_results(first.path, extended(study, ResultsFolder(first.path)), loss, skip=skip)
    analysis = analyse(both)
    assert not analysis.unregistered
    contrast = analysis.contrast("layernorm", "validation_loss")
    deltas = np.array([pair.delta for pair in contrast.by_run.pairs])
    expected = Stages(5, stage_weights(0.5)).decide(lambda part: paired_t(deltas[part]))
    assert contrast.decided.p_value == pytest.approx(expected.p_value())
    assert contrast.decided.interval.low == pytest.approx(expected.interval().low)
    assert contrast.decided.mean == pytest.approx(expected.mean)
    assert contrast.decided.n == 15
    # Events are combined by stage as well: the baseline diverges in 2 of 5 and in 6 of 10 seeds.
    table = Table.from_results(both)
    events = {
        (arm, seed): replace(
            found, diverged=arm == "baseline" and seed in (1, 2, 6, 7, 8, 9, 10, 11)
        )
        for (arm, seed), found in table.events.items()
    }
    stability = stabilities_of(replace(table, events=events))[0]
    p = combined_mcnemar([(2, 0), (6, 0)], stage_weights(0.5))
    assert stability.any_event.p_value == pytest.approx(mcnemar(8, 0))
    assert stability.holm_p == pytest.approx(2 * p) and p > 2 * mcnemar(8, 0)
    assert texts(decide(analysis), "two_stages")
    machine = ("device", "data:", "packages", "code", "metrics", "suite")  # not fabricated
    found = [line for line in registration_findings(both) if not any(m in line for m in machine)]
    assert found == []


def test_the_study_file_runs_on_as_the_extended_study(first, small_study):
    study, folder = small_study(FIXED, seeds=SEEDS), ResultsFolder(first.path)
    assert extended(study, folder) is study
    whole = extend(first.path, 3)
    assert extended(study, folder).digest == whole.digest
    assert first_stage(whole).digest == study.digest
    other = small_study(FIXED, seeds=[1, 2])
    assert extended(other, folder) is other


def test_what_cannot_be_extended_is_refused(small_study, fabricate):
    study = small_study(FIXED, seeds=SEEDS)
    unfinished = fabricate(study, loss, "unfinished", skip=[("layernorm", 5)])
    with refused("value", match="15 trials"):
        extend(unfinished.path, 5)
    finished = fabricate(study, loss, "finished")
    extend(finished.path, 2)
    with refused("value", match="second stage"):
        extend(finished.path, 2)
    with refused("missing", match="results folder"):
        extend(finished.path / "nothing", 2)
    archive(finished, finished.path.with_name("archive"))
    with refused("different", match="archive"):
        extend(finished.path.with_name("archive"), 3)


def test_stages_that_share_items_are_not_combined_for_claims_about_new_ones(small_study, fabricate):
    """Stage p would use the error of the items; 5% were 12 to 13% in simulations."""
    results = fabricate(small_study({"inference.target": "new items"}, seeds=SEEDS), loss, "items")
    with refused("value", match="would use"):
        extend(results.path, 5)
    assert not (results.path / "registration-1.json").exists()
