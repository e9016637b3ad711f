"""Several studies on one page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.decision import WORDS
from paribus.errors import ParibusError
from paribus.report.compare import _studies, comparison_tables, write_comparison
from paribus.results import Results
from paribus.study import Study
from paribus.trainers.judging import columns, exploratory, judged, table_runs

Maker, Fabricate = Callable[..., Study], Callable[..., Results]
Make = Callable[[str, Study], Results]


@pytest.fixture
def made(fabricate: Fabricate) -> Make:
    def loss(arm: str, seed: int) -> float:
        return 2.5 + seed / 50 + len(arm) * seed / 900

    return lambda folder, study: fabricate(study, loss, folder=folder)


def test_studies_stand_side_by_side(small_study: Maker, made: Make, tmp_path: Path) -> None:
    pilot = made("pilot", small_study(name="pilot"))
    final = made("final", small_study(name="final", seeds=[1, 2, 3, 4, 5]))
    page = write_comparison([pilot, final], tmp_path / "both.html").read_text("utf-8")
    markup = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert "pilot, final" in markup
    assert markup.count("layernorm is DESCRIPTIVE (") == 1  # two seeds of the pilot
    assert len(re.findall(r"layernorm is (?:BETTER|WORSE|SAME|UNRESOLVED) \(", markup)) == 1
    assert "figure-studies" in markup
    assert not re.search(r"https?:", markup)
    for table in comparison_tables([pilot, final]):
        assert [row[0] for row in table.rows] == ["pilot", "final"]
        assert table.rows[0][1] == "DESCRIPTIVE" and table.rows[1][1] in WORDS


def test_every_primary_endpoint_that_all_studies_judge_is_drawn(
    small_study: Maker, made: Make, tmp_path: Path
) -> None:
    def judged(*metrics: str) -> list[dict]:
        return [{"metric": metric, "primary": True, "margin": 0.03} for metric in metrics]

    one = made("one", small_study(endpoints=judged("brier_score", "validation_loss")))
    two = made("two", small_study(endpoints=judged("validation_loss", "brier_score")))
    page = write_comparison([one, two], tmp_path / "both.html").read_text("utf-8")
    assert 'id="figure-studies"' in page and 'id="figure-studies-validation_loss"' in page
    markup = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert "Brier score</h2>" in markup and "Validation loss</h2>" in markup
    third = made("third", small_study(endpoints=judged("validation_loss")))
    page = write_comparison([one, third], tmp_path / "shared.html").read_text("utf-8")
    assert "Brier score</h2>" not in page and "Validation loss</h2>" in page


def test_studies_of_one_name_are_told_apart(small_study: Maker, made: Make, tmp_path: Path) -> None:
    both = [made(folder, small_study()) for folder in ("one", "two")]
    page = write_comparison(both, tmp_path / "both.html").read_text("utf-8")
    assert "small (one)" in page and "small (two)" in page


def test_a_study_without_sizes_has_blank_cells_for_them(
    small_study: Maker, made: Make, tmp_path: Path
) -> None:
    endpoints = [{"metric": "validation_loss", "primary": True, "margin": 0.03}]
    trained = made("trained", small_study(name="trained", endpoints=endpoints))
    runs = [(arm, seed) for arm in ("baseline", "layernorm") for seed in (1, 2, 3)]
    table = {
        "arm": [arm for arm, _ in runs],
        "seed": [seed for _, seed in runs],
        "validation_loss": [2 + len(arm) / 100 + seed / 50 for arm, seed in runs],
    }
    scores = ["validation_loss"]
    reading = table_runs(table, columns(scores, "arm", "seed"))
    study = exploratory(reading, scores=scores, margin=0.03, baseline="baseline", name="logged")
    with judged(study, reading, tmp_path / "logged") as logged:
        told = _studies(["logged", "trained"], [logged, trained])
    first, second = (dict(zip(told.head, row, strict=True)) for row in told.rows)
    assert (first["tokens"], first["seeds"]) == ("", "3")
    assert (second["iterations"], second["seeds"]) == ("8", "2")


def test_what_cannot_be_compared_is_refused(small_study: Maker, made: Make, tmp_path: Path) -> None:
    one = made("one", small_study())
    with pytest.raises(ParibusError, match="two or more"):
        write_comparison([one], tmp_path / "x.html")
    arms = {"baseline": {}, "other": {"set": {"model.embedding.norm": "center"}}}
    other = made("other", small_study(arms=arms))
    with pytest.raises(ParibusError, match="no contrast in common"):
        write_comparison([one, other], tmp_path / "x.html")
    endpoints = [{"metric": "brier_score", "primary": True, "margin": 0.1}]
    third = made("third", small_study(endpoints=endpoints))
    with pytest.raises(ParibusError, match="different endpoints"):
        write_comparison([one, third], tmp_path / "x.html")
