"""Studies of many trials: pages, papers and tables sum seeds up, and say so."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from paribus.analysis import analyse
from paribus.report.figures import draw
from paribus.report.figures.recorded import over_seeds
from paribus.report.tables import trial_tables, trials
from paribus.results import write_tables

from ..build import write_results
from ..conftest import studies_in

SEEDS = list(range(1, 8))
# A large study takes long to make: here it begins at fewer trials.
MOST_LINES, MOST_PAIRS = 2 * len(SEEDS) - 1, 4
PROBES = ("residual_norm", "logits")


def loss(arm: str, seed: int) -> float:
    return 2.5 + 0.01 * seed + len(arm) * (seed % 3) / 500


@pytest.fixture(scope="module", autouse=True)
def few_are_many():
    with pytest.MonkeyPatch.context() as patch:
        for module in ("tables", "figures.recorded"):
            patch.setattr(f"paribus.report.{module}.MOST_LINES", MOST_LINES)
        patch.setattr("paribus.report.figures.contrasts.MOST_PAIRS", MOST_PAIRS)
        yield


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """More trials than have marks of their own; one diverged. Tests here only read it."""
    folder = tmp_path_factory.mktemp("large")
    arms = {"baseline": {}, "layernorm": {"set": {"model.embedding.norm": "layernorm"}}}
    study = studies_in(folder)(
        {"tasks.names": [], "evaluation.every": 4, "evaluation.curve_tokens": 64},
        seeds=SEEDS,
        arms=arms,
    )
    return write_results(
        folder / "made", study, loss, probes=PROBES, diverged=[("layernorm", SEEDS[1])]
    )


@pytest.fixture(scope="module")
def analysis(large):
    return analyse(large)


@pytest.fixture(scope="module")
def figures(large, analysis):
    return {figure.name: figure for figure in draw(large, analysis)}


def test_rows_of_many_seeds_are_means_between_the_ends():
    values = np.arange(101.0)
    rows = [{"arm": "a", "seed": i, "part": "p", "value": v} for i, v in enumerate(values)]
    rows += [{"arm": "b", "seed": 1, "part": "p", "value": 7.0}]
    ours, theirs = over_seeds(rows, "value")
    assert ours == {"arm": "a", "part": "p", "value": 50.0, "low": 0.0, "high": 100.0}
    assert theirs == {"arm": "b", "part": "p", "value": 7.0, "low": 7.0, "high": 7.0}


def test_no_figure_has_a_row_for_each_trial(figures):
    for figure in figures.values():
        if not figure.name.startswith("pairs-"):  # of which some are drawn
            assert not any("seed" in row for row in figure.rows), figure.name
    assert {"loss-curves", "throughput", "residual-norm-depth"} <= figures.keys()


def test_the_band_of_losses_holds_every_seed(large, figures):
    rows = [r for r in figures["loss-curves"].rows if r["arm"] == "baseline"]
    last = max((r for r in rows if "token" in r["part"]), key=lambda row: row["x"])
    ends = [large.trial_curves["baseline", seed].final for seed in SEEDS]
    assert last["low"] == pytest.approx(min(ends), 1e-4)
    assert last["high"] == pytest.approx(max(ends), 1e-4)
    assert last["value"] == pytest.approx(np.mean(ends), 1e-4)


def test_pairs_are_drawn_at_even_ranks(figures, analysis):
    figure = figures["pairs-validation_loss"]
    seeds = {row["seed"] for row in figure.rows}
    assert len(seeds) == MOST_PAIRS < len(SEEDS) - 1
    ours, theirs = (
        analysis.summary(arm, "validation_loss").values for arm in ("layernorm", "baseline")
    )
    changes = {seed: ours[seed] - theirs[seed] for seed in ours}
    drawn = [changes[seed] for seed in seeds]
    assert (min(drawn), max(drawn)) == (min(changes.values()), max(changes.values()))


def test_trials_are_summed_up_and_errors_named(large, analysis):
    by_arm, notable = trial_tables(large, analysis)
    assert [row[:4] for row in by_arm.rows] == [
        ("baseline", str(len(SEEDS)), "0", "0"),
        ("layernorm", str(len(SEEDS)), "1", "0"),
    ]
    at = by_arm.head.index("validation loss")
    least, middle, most = map(float, by_arm.rows[0][at].split(" / "))
    values = [loss("baseline", seed) for seed in SEEDS]
    assert (least, middle, most) == pytest.approx(
        (min(values), np.median(values), max(values)), abs=1e-4
    )
    assert [row[:2] for row in notable.rows] == [("layernorm", str(SEEDS[1]))]
    assert len(trials(large, analysis).rows) == 2 * len(SEEDS)


def test_tables_in_turn_are_the_tidy_ones(large):
    write_tables(large)
    for name in ("probes", "evaluation", "blocks", "items"):
        written = pq.ParquetFile(large.path / "tables" / f"{name}.parquet")
        wanted = getattr(large, name)
        assert written.read().to_pylist() == wanted.to_pylist()
