"""What a notebook shows: every object as HTML, short texts, and figures by name."""

from html.parser import HTMLParser
from typing import Any

import pytest

import paribus

GAIN = {"baseline": 2.5, "layernorm": 2.4, "rmsnorm": 2.45}


@pytest.fixture(name="results")
def finished(small_study, fabricate):
    study = small_study(seeds=[1, 2, 3, 4, 5], title="<i>1 & 2</i>", question="<b>why</b>?")
    return fabricate(study, lambda arm, seed: GAIN[arm] + 0.001 * (seed * 7 % 5))


class Tags(HTMLParser):
    """The tags that are open, and every text outside the style sheet."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in ("img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style" and data.strip():
            self.texts.append(data.strip())


def test_every_object_shows_itself(results):
    analysis = paribus.analyse(results)
    verdicts = paribus.decide(analysis)
    for shown in (results.study, results, analysis, verdicts):
        tags = Tags()
        tags.feed(shown._repr_html_())
        assert not tags.open
        assert "b" not in tags.open and "i" not in tags.open
        if shown is results.study:
            assert "<b>why</b>?" in tags.texts  # as text, not as a tag
        else:
            assert {"BETTER", verdicts[0].word} & set(tags.texts)
            assert "data:image/svg+xml" in shown._repr_html_()


def test_figures_go_by_name(results):
    names = paribus.figures.names(results)
    assert "forest" in names
    chart = results.plot().to_dict()
    assert {row["arm"] for row in chart["datasets"]["forest"]} >= {"layernorm", "rmsnorm"}
    primary = results.study.primary.metric
    assert results.plot(primary).to_dict()["datasets"].keys() == {f"pairs-{primary}"}
    for wrong in ("forrest", ""):
        with pytest.raises(paribus.ParibusError, match="no figure"):
            results.plot(wrong)
