"""Accuracy by item: windows that weigh by their tokens, arms that share no items, single tasks."""

from collections.abc import Callable

import numpy as np
import pytest

from paribus import numbers
from paribus.analysis import analyse
from paribus.analysis.items import block_scores
from paribus.analysis.table import Table
from paribus.decision import decide
from paribus.engine.evaluation import all_measures
from paribus.metric import ItemSums
from paribus.report import tables
from paribus.report.model import build_report
from paribus.report.record import verdict_record
from paribus.results import Results, load_results
from paribus.results.trial_folder import TrialFolder

from ..build import write_blocks
from ..tools import texts

SEEDS = [1, 2, 3, 4, 5, 6]
TWO_ARMS = {"baseline": {}, "arm": {"set": {"model.embedding.norm": "layernorm"}}}
NEW = {"inference": {"target": "new items"}}
ACCURACY = {"metric": "validation_accuracy", "primary": True, "margin": 0.001}


@pytest.fixture
def make(small_study, fabricate):
    """`make(endpoint, **tables)`: records of two arms and six seeds."""

    def made(
        *endpoints: dict[str, object],
        loss: Callable[[str, int], float] = lambda arm, seed: 2.0,
        folder: str = "made",
        **tables: object,
    ) -> Results:
        about: dict[str, object] = {"seeds": SEEDS, "arms": TWO_ARMS} | tables
        if endpoints:
            about["endpoints"] = [*endpoints]
        return fabricate(small_study(**about), loss, folder=folder)

    return made


def windows(trial: TrialFolder, correct: list[int], predicted: list[int]) -> None:
    hits, sizes = np.array(correct), np.array(predicted)
    sums = {"loss_sum_nats": 2.0 * sizes, "correct": hits, "predicted": sizes}
    write_blocks(trial, sums, validation_accuracy=float(hits.sum() / sizes.sum()))


def test_a_short_last_window_weighs_by_its_tokens(make):
    made = make(ACCURACY, **NEW)
    for trial in made.finished:
        ours = trial.arm == "arm"
        correct = [8 - ours, 8 - ours * (trial.seed % 2), 8, 8, 12 * ours]
        windows(trial, 8 * correct, 8 * [16, 16, 16, 16, 12])
    analysis = analyse(load_results(made.path))
    contrast = analysis.contrast("arm", "validation_accuracy")
    means = [analysis.summary(arm, "validation_accuracy").mean for arm in ("arm", "baseline")]
    assert contrast.decided.test == "crossed_components"
    assert contrast.decided.mean == pytest.approx(means[0] - means[1])
    assert contrast.decided.mean == pytest.approx((12 - 1.5) / 76)


def test_arms_without_shared_items_are_judged_on_their_own(make):
    made = make(ACCURACY, **NEW)
    for trial in made.finished:
        if trial.arm == "arm":
            windows(trial, [2 + trial.seed % 3] * 160, [8] * 160)
        else:
            windows(trial, [6] * 80, [16] * 80)
    analysis = analyse(load_results(made.path))
    contrast = analysis.contrast("arm", "validation_accuracy")
    assert contrast.decided.test == "paired_t"
    (text,) = texts(decide(analysis), "these_items")
    assert "different blocks" in text and "this text" in text


LOSS = {"metric": "validation_loss", "primary": True, "margin": 0.001}


def with_documents(made: Results) -> dict[str, np.ndarray]:
    """Sums of nats by arm, [S, 12], over documents of very unequal sizes."""
    rng = np.random.default_rng(11)
    sizes = np.ceil(rng.lognormal(4, 1, size=12)).astype(int)
    shifts = rng.normal(0, 0.1, size=12)  # of single documents, the same at every seed
    sums: dict[str, list[np.ndarray]] = {"baseline": [], "arm": []}
    for trial in made.finished:
        ours = trial.arm == "arm"
        noise = np.random.default_rng([trial.seed, ours]).normal(0, 0.02, size=12)
        nats = (2.0 + ours * shifts + noise) * sizes
        columns = {"loss_sum_nats": nats, "correct": sizes // 2, "predicted": sizes}
        loss = float(nats.sum() / sizes.sum())
        write_blocks(trial, columns, "document", validation_loss=loss)
        sums[trial.arm].append(nats)
    return {arm: np.stack(rows) for arm, rows in sums.items()} | {"sizes": sizes}


def test_loss_about_new_text_is_decided_by_seeds_and_documents(make):
    made = make(LOSS, **NEW)
    sums = with_documents(made)
    analysis = analyse(load_results(made.path))
    contrast = analysis.contrast("arm", "validation_loss")
    says = contrast.decided
    assert says.test == "crossed_components" and contrast.items_about == "12 documents"
    assert says.mean == pytest.approx(contrast.by_run.mean)

    rng, S = np.random.default_rng(3), len(SEEDS)
    drawn = []
    for _ in range(4_000):
        seeds, documents = rng.integers(S, size=S), rng.integers(12, size=12)
        size = sums["sizes"][documents].sum()
        change = sums["arm"] - sums["baseline"]
        drawn.append(np.mean([change[s][documents].sum() / size for s in seeds]))
    error = np.std(drawn) * np.sqrt(S / (S - 1))
    # A bootstrap of both counts their interaction three times, so that its error is an upper bound.
    crossed = says.basis
    assert contrast.by_run.sd / np.sqrt(S) < crossed.standard_error <= 1.02 * error
    assert crossed.standard_error == pytest.approx(error, rel=0.2)
    # What decides is what every reader states.
    assert says.p_value == contrast.p == crossed.p_value() > contrast.by_run.decided.p_value
    (verdict,) = verdicts = decide(analysis)
    assert "12 documents" in verdict.target
    report = build_report(verdicts)
    assert report.blocks[0].title.endswith(f", on {verdict.target}")
    assert verdict_record(report)["verdicts"][0]["target"] == verdict.target
    assert numbers.p_value(says.p_value) in report.blocks[0].rows[0].tests
    assert numbers.p_value(says.p_value) in tables.primary(analysis)[0].rows[1]


def test_windows_of_one_text_are_judged_by_blocks(make):
    made = make(ACCURACY, loss=lambda _, seed: 2.0 + 0.01 * seed, **NEW)
    rng = np.random.default_rng(5)
    stretches = np.repeat(rng.integers(-9, 10, size=10), 40)
    for trial in made.finished:
        noise = np.random.default_rng(trial.seed).integers(0, 3, size=400)
        hits = 50 + noise + (trial.arm == "arm") * (stretches + trial.seed % 2)
        windows(trial, hits.tolist(), [100] * 400)
    contrast = analyse(load_results(made.path)).contrast("arm", "validation_accuracy")
    assert contrast.items_about.startswith("10 contiguous")
    assert contrast.target.startswith("this text")
    # All blocks differ alike at every seed: the error of the text is that of ten numbers.
    expected = stretches[::40].std(ddof=1) / 100 / np.sqrt(10)
    assert contrast.decided.basis.item_error == pytest.approx(expected)


@pytest.mark.parametrize("metric", [m.metric for m in all_measures() if m.metric.items])
def test_blocks_weigh_as_a_ratio_estimator_has_it(make, metric):
    """The mean over blocks is the ratio of the sums, and their spread gives its standard error.

    Against the textbook's s.e. of a ratio (Cochran 1977, equation 6.13), written out in numbers.
    """
    made = make(seeds=SEEDS[:2])
    rng = np.random.default_rng(4)
    sizes = rng.integers(5, 200, size=40)
    y = rng.uniform(0.2, 0.6, size=40) * sizes
    for trial in made.finished:
        columns = {"loss_sum_nats": y, "brier_sum": y, "correct": y, "predicted": sizes}
        write_blocks(trial, columns | {"bytes": sizes})
    table = Table.from_results(load_results(made.path))
    assert isinstance(metric.items, ItemSums)
    scores = block_scores(table, metric.items, "arm", (1, 2))
    scale = 1 / np.log(2) if metric.name.startswith("bits_per") else 1.0
    ratio = y.sum() / sizes.sum()
    assert scores.shape == (2, 40)
    assert scores.mean(axis=1) == pytest.approx(scale * ratio)
    error = np.sqrt(((y - ratio * sizes) ** 2).sum() / 39 / 40) / sizes.mean()
    assert scores[0].std(ddof=1) / np.sqrt(40) == pytest.approx(scale * error)


def test_documents_are_shared_by_arms_that_read_other_windows(make):
    made = make(ACCURACY, **NEW)
    for trial in made.finished:
        sizes = np.array([30, 50, 20, 60, 40, 10]) // (2 if trial.arm == "arm" else 1)
        # Of the first token, which no token predicts, the arm has more characters.
        characters = [89 - 3 * (trial.arm == "arm"), 150, 60, 180, 120, 30]
        sums = {"loss_sum_nats": 2.0 * sizes, "correct": sizes // 2, "predicted": sizes}
        write_blocks(trial, sums | {"characters": characters}, "document")
    contrast = analyse(load_results(made.path)).contrast("arm", "validation_accuracy")
    assert contrast.items_why_not == "" and contrast.items_about == "6 documents"
