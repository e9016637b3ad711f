"""Every figure that the records have data for is drawn, and says only what is there."""

from __future__ import annotations

import json

import pytest
import vl_convert

import paribus
from paribus.analysis import analyse
from paribus.decision import decide
from paribus.report.figures import Figure, draw
from paribus.report.figures.style import PRINTED_TEXT, TEXT
from paribus.report.tables import accuracy_table
from paribus.results import Results

from ..build import write_results
from ..conftest import Fabricate, Maker, studies_in

SEEDS = [1, 2, 3, 4, 5]


def loss(arm: str, seed: int) -> float:
    return 2.5 + 0.01 * seed + len(arm) * (seed % 3) / 500


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Five seeds of the small study, finished; tests here only read it."""
    folder = tmp_path_factory.mktemp("five")
    return write_results(folder / "made", studies_in(folder)(seeds=SEEDS), loss)


@pytest.fixture(scope="module")
def figures(five: Results) -> dict[str, Figure]:
    return drawn(five)


def drawn(results: Results) -> dict[str, Figure]:
    return {figure.name: figure for figure in draw(results, analyse(results))}


def test_every_expected_figure_is_drawn(five: Results, figures: dict[str, Figure]) -> None:
    owed = {"pairs-validation_loss", "forest", "train_loss", "grad_norm", "embedding_norm-all-mean"}
    owed |= {
        "embedding_norm-spread-mean",
        "residual_norm-profile-mean",
        "position_similarity-profile-plain",
    }
    owed |= {
        "optimizer_slots-exp_avg_sq-panels-mean",
        "gradient_norm-panels-value",
        "update_ratio-panels-value",
    }
    owed |= {
        "logits-all-mean-magnitude",
        "reliability_accuracy-bin-against",
        "temperature_loss-T-curve",
    }
    owed |= {
        "validation_loss-position-curve",
        "validation_loss-parts",
        "context_loss-context-curve",
    }
    owed |= {"temperature_calibration_error-T-curve"}
    assert owed <= figures.keys()
    for figure in figures.values():
        assert figure.rows and figure.title and figure.text.endswith((".", ")"))


@pytest.mark.parametrize("missing", ["embedding_norm", "residual_norm", "optimizer_slots"])
def test_absent_probes_no_figure(small_study: Maker, fabricate: Fabricate, missing: str) -> None:
    probes = {"embedding_norm", "residual_norm", "optimizer_slots"} - {missing}
    found = drawn(fabricate(small_study(), loss, probes=probes))
    names = {
        "embedding_norm": "embedding_norm-spread-mean",
        "residual_norm": "residual_norm-profile-mean",
        "optimizer_slots": "optimizer_slots-exp_avg_sq-panels-mean",
    }
    assert names[missing] not in found
    assert {names[probe] for probe in probes} <= found.keys()


def test_each_seed_is_a_line_of_the_records(five: Results, figures: dict[str, Figure]) -> None:
    rows = figures["train_loss"].rows
    first = [row["value"] for row in rows if (row["arm"], row["seed"]) == ("baseline", 1)]
    assert first == pytest.approx(five.trial_steps["baseline", 1]["train_loss"].to_pylist(), 1e-4)
    assert {(row["arm"], row["seed"]) for row in rows} == set(five.study.trials)


def test_a_notebook_shows_the_card_and_figures_by_name(five: Results) -> None:
    verdicts = decide(analyse(five))
    assert verdicts[0].word in verdicts._repr_markdown_()
    assert "forest" in paribus.figures.names(five)
    chart = paribus.figures.plot(five).to_dict()
    assert {row["arm"] for row in chart["datasets"]["forest"]} >= {"layernorm", "rmsnorm"}
    primary = five.study.primary.metric
    assert paribus.figures.plot(five, primary).to_dict()["datasets"].keys() == {f"pairs-{primary}"}
    assert paribus.figures.plot(five, "train").to_dict()["datasets"].keys() == {"train_loss"}
    for wrong in ("forrest", ""):
        with pytest.raises(paribus.ParibusError) as caught:
            paribus.figures.plot(five, wrong)
        assert caught.value.code == "unknown"


def test_printed_figures_have_their_data_and_black_text(figures: dict[str, Figure]) -> None:
    figure = figures["forest"]
    printed = figure.printed(380)
    assert TEXT not in json.dumps(printed) and PRINTED_TEXT in json.dumps(printed)
    assert printed["datasets"]["forest"] == figure.rows
    svg = vl_convert.vegalite_to_svg(printed)
    assert "layernorm" in svg and svg == vl_convert.vegalite_to_svg(printed)


def test_accuracy_is_averaged_by_task_and_arm(five: Results) -> None:
    rows = [
        {"arm": arm, "seed": 1, "task": "typo", "shots": 0, "accuracy": accuracy, "chance": 0.25}
        for arm, accuracy in (("baseline", 0.5), ("layernorm", 0.75))
    ]
    shown = accuracy_table(five.study, rows)
    assert shown.rows[0] == ("typo", "0", "baseline", "50.0", "1", "25.0")
    assert shown.rows[1] == ("", "", "layernorm", "75.0", "1", "25.0")
