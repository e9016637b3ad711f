"""The page: whole without a network, safe with any text, and right when little is there."""

import re

import numpy as np
import pytest

from paribus.analysis import analyse
from paribus.decision import decide
from paribus.report import page as scripts
from paribus.report.model import build_report
from paribus.report.page import render, write_report
from paribus.results import Results, load_results

from ..build import write_results
from ..conftest import studies_in


def loss(arm: str, seed: int) -> float:
    return 2.5 + 0.01 * seed + 0.02 * (arm != "baseline") * (seed % 3)


@pytest.fixture(scope="module")
def five(tmp_path_factory):
    """Five seeds of the small study, finished; tests here only read its records."""
    folder = tmp_path_factory.mktemp("five")
    study = studies_in(folder)(question="Does it help?", seeds=[1, 2, 3, 4, 5])
    return write_results(folder / "made", study, loss)


@pytest.fixture(scope="module")
def page(five):
    return page_of(five)


def page_of(results: Results) -> str:
    analysis = analyse(results)
    return render(results, analysis, decide(analysis))


def test_the_page_says_what_the_records_say(five, page):
    analysis = analyse(five)
    assert "Does it" in page
    summary = analysis.summary("layernorm", "validation_loss")
    assert f"{summary.mean:.4f} ({summary.sd:.4f})" in page
    report = build_report(decide(analysis), titles=True)
    for row in report.rows:
        assert row.change.partition(" ")[0] in page and row.word in page
    for caution in report.cautions:
        assert caution.text in page.replace("&#39;", "'")
    for part in ("initial values", "figure-train_loss", five.study.digest):
        assert part in page


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


def test_chips_are_of_what_was_looked_at(small_study, fabricate):
    study = small_study(seeds=[1, 2])
    results = fabricate(study, loss, diverged=[("rmsnorm", 1)])
    found = {chip.section: chip for chip in build_report(decide(analyse(results))).chips}
    assert found["trials"].text == "6 of 6 trials"
    assert found["stability"].text == "5 of 6 trials stable"
    assert found["stability"].style == "open"
    held = sum(c.state in ("held", "declared") for c in analyse(results).controls)
    assert f"{held} of " in found["controls"].text
    alone = fabricate(small_study(arms={"baseline": {}}, seeds=[1]), loss, folder="alone")
    chips = build_report(decide(analyse(alone))).chips
    assert {chip.section for chip in chips} == {"trials", "stability"}
