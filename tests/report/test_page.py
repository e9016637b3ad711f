"""The page and its figures: whole without a network, safe with any text, and only what is there."""

import json
import re

import numpy as np
import pytest
import vl_convert
from scipy.stats import ttest_1samp

import paribus.figures
from paribus.analysis import analyse
from paribus.decision import decide
from paribus.report import page as scripts
from paribus.report.figures import Figure, draw
from paribus.report.figures.style import PRINTED_TEXT, TEXT
from paribus.report.page import render, write_report
from paribus.report.tables import accuracy_table, contrasts
from paribus.results import Results, load_results

from ..build import write_results
from ..conftest import studies_in
from ..tools import refused


def loss(arm: str, seed: int) -> float:
    return 2.5 + 0.01 * seed + len(arm) * (seed % 3) / 500


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Five seeds of the small study, finished; tests here only read its records."""
    folder = tmp_path_factory.mktemp("five")
    return write_results(folder / "made", studies_in(folder)(seeds=[1, 2, 3, 4, 5]), loss)


@pytest.fixture(scope="module")
def page(five):
    return page_of(five)


def page_of(results: Results) -> str:
    analysis = analyse(results)
    return render(results, analysis, decide(analysis))


def test_the_page_fetches_nothing(page):
    markup = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"https?:", markup)
    assert not re.search(r"<(link|img|iframe)|<script [^>]*src|@import|url\(", markup)
    assert len(page) < 4_000_000


def test_text_of_a_study_stays_text(small_study, fabricate):
    evil = "<script>alert(1)<\\script>".replace("\\", "")
    study = small_study(
        name=evil.replace("/", ""),
        title="</script><b>bold</b>",
        arms={"baseline": {}, "<img src=x>": {"set": {"model.embedding.norm": "layernorm"}}},
    )
    page = page_of(fabricate(study, loss))
    assert "<img src=x>" not in page
    assert "<b>bold</b>" not in page
    assert "<script>alert" not in page
    assert page.count("<script>") == page.count("</script>") == 2
    assert "</script><b>" not in page


def test_all_diverged(small_study, fabricate):
    study = small_study()
    results = fabricate(
        study,
        lambda arm, seed: float("nan"),
        curve=lambda arm, seed: np.full(8, np.nan),
        diverged=study.trials,
    )
    page = page_of(results)
    assert "diverged" in page
    assert "nan" not in re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL).lower()


def test_every_contrast_is_shown_in_full(five, page):
    analysis = analyse(five)
    table = contrasts(analysis)
    shown = [dict(zip(table.head, row, strict=True)) for row in table.rows]
    assert len(shown) == sum(c.decided is not None for c in analysis.contrasts) > 2
    row, contrast = shown[0], analysis.contrasts[0]
    scores = np.array([(pair.baseline, pair.treatment) for pair in contrast.by_run.pairs])
    deltas = scores[:, 1] - scores[:, 0]
    assert (row["n"], row["SD"]) == ("5", f"{deltas.std(ddof=1):.4f}")
    assert row["r"] == f"{np.corrcoef(scores.T)[0, 1]:.2f}"
    ends = ttest_1samp(deltas, 0).confidence_interval(0.9)
    assert row["90%"] == f"[{ends.low:+.4f}, {ends.high:+.4f}]"
    size = contrast.by_run.g_interval()
    assert row["g [95%]"] == f"{contrast.by_run.g:+.2f} [{size.low:+.2f}, {size.high:+.2f}]"
    assert row["detectable"] == f"{contrast.decided.detectable:.4f}"
    check = contrast.checks[0]  # five pairs are too few for the bootstrap to contradict
    assert (check.holm_p <= 0.05) != contrast.significant(0.05) and not check.disagrees
    assert row["studentized bootstrap p"] == f"{check.p_value:.3f}"
    assert 'id="contrasts"' in page and row["g [95%]"] in page


def test_equal_records_give_an_equal_page(five, page):
    again = load_results(five.path)
    assert page_of(again) == page
    analysis = analyse(five)
    path = write_report(five, analysis, decide(analysis))
    assert path.read_text() == page


def test_scripts_are_bundled_once(monkeypatch, tmp_path):
    asked: list[str] = []

    def bundle(code: str) -> str:
        asked.append(code)
        return "let a = '</script>';"

    monkeypatch.setattr(scripts.vl_convert, "javascript_bundle", bundle)
    monkeypatch.setenv("PARIBUS_CACHE", str(tmp_path / "cache"))
    first = scripts.javascript()
    assert "</script" not in first and scripts.javascript() == first and len(asked) == 1


@pytest.fixture(scope="module")
def figures(five: Results) -> dict[str, Figure]:
    return drawn(five)


def drawn(results: Results) -> dict[str, Figure]:
    return {figure.name: figure for figure in draw(results, analyse(results))}


def test_every_expected_figure_is_drawn(five: Results, figures: dict[str, Figure]) -> None:
    names = """
        forest pairs-validation_loss train_loss grad_norm embedding_norm-all-mean
        embedding_norm-spread-mean residual_norm-profile-mean position_similarity-profile-plain
        optimizer_slots-exp_avg_sq-panels-mean gradient_norm-panels-value update_ratio-panels-value
        logits-all-mean-magnitude reliability_accuracy-bin-against temperature_loss-T-curve
        temperature_calibration_error-T-curve validation_loss-position-curve validation_loss-parts
        context_loss-context-curve"""
    assert {*names.split()} <= figures.keys()
    for figure in figures.values():
        assert figure.rows and figure.title and figure.text.endswith((".", ")"))


def test_a_notebook_shows_the_card_and_figures_by_name(five: Results) -> None:
    verdicts = decide(analyse(five))
    assert verdicts[0].word in verdicts._repr_markdown_()
    primary = five.study.primary.metric
    names = {"forest": "forest", primary: f"pairs-{primary}", "train": "train_loss"}
    for name, drawn_as in names.items():
        chart = getattr(paribus.figures, name)(five).to_dict(validate=False)
        assert drawn_as in chart["datasets"]
    assert {"forest", "embedding_norm_all_mean"} <= {*paribus.figures.names(five)}
    with refused("unknown"):
        paribus.figures.forrest(five)


def test_printed_figures_have_their_data_and_black_text(figures: dict[str, Figure]) -> None:
    figure = figures["forest"]
    printed = figure.printed(380)
    assert TEXT not in json.dumps(printed) and PRINTED_TEXT in json.dumps(printed)
    assert printed["datasets"]["forest"] == figure.rows
    assert "layernorm" in vl_convert.vegalite_to_svg(printed)


def test_accuracy_is_averaged_by_task_and_arm(five: Results) -> None:
    rows = [
        {"arm": arm, "seed": 1, "task": "typo", "shots": 0, "accuracy": accuracy, "chance": 0.25}
        for arm, accuracy in (("baseline", 0.5), ("layernorm", 0.75))
    ]
    shown = accuracy_table(five.study, rows)
    assert shown.rows[0] == ("typo", "0", "baseline", "50.0", "1", "25.0")
    assert shown.rows[1] == ("", "", "layernorm", "75.0", "1", "25.0")
