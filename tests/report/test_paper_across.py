"""What a paper of several studies finds across them: hypotheses, learning rates and sizes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from paribus.decision.row import Stated
from paribus.report.figures import forest
from paribus.report.figures.style import CHARACTER_PIXELS
from paribus.report.paper import Material
from paribus.report.paper import hypotheses as of_hypotheses
from paribus.report.paper.document import Grid, Paragraph, Part
from paribus.report.paper.hypotheses import hypotheses
from paribus.report.paper.judged import judged
from paribus.report.paper.mechanism import mechanism
from paribus.report.paper.rates_and_sizes import rate_sensitivity, size_trends
from paribus.report.paper.study_section import short_contrasts
from paribus.report.table_model import Table
from paribus.statistics import paired_contrast

from .test_paper_of_several import SEEDS, made, material_of

SIZES = {"small": 1_000, "middle": 10_000, "large": 100_000}


def words(part: Part | None) -> str:
    assert part is not None
    return " ".join(block.text for block in part.blocks if isinstance(block, Paragraph))


def table(part: Part | None) -> Any:
    assert part is not None
    (found,) = (block.table for block in part.blocks if isinstance(block, Grid))
    return found


def test_each_hypothesis_has_one_answer_with_what_could_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no study judges the endpoint that they are of, there is no answer; the loss stands in
    for it here."""
    worse, same = (
        material_of(made(tmp_path, name, effect)) for name, effect in (("worse", 0.3), ("same", 0))
    )
    assert hypotheses([worse, same]) is None
    stated = {name: Stated("words", "validation_loss", "loss") for name in ("H0", "H1a")}
    monkeypatch.setattr(of_hypotheses, "HYPOTHESES", stated)
    part = hypotheses([worse, same])
    said = words(part)
    assert "holds in some settings: it is shown in 2 of 4 comparisons, with changes of" in said
    assert "is shown in 2 of them" in said and "open" not in said
    detectable = [
        one.contrast.decided.detectable
        for material in (worse, same)
        for one in judged(material)
        if one.contrast.decided is not None
    ]
    low, high = (f"{f(n for n in detectable if n is not None):.4f}" for f in (min, max))
    assert f"changes from {low} on would have been seen" in said and f"from {high} on" in said
    assert "H1b, a cure where training is unstable, was not put to the test." in said
    rows = table(part).rows
    assert [row[0].strip() for row in rows] == [
        *("worse", "layernorm", "rmsnorm", "same", "layernorm", "rmsnorm")
    ]
    assert [row[-1] for row in rows if row[-1]] == ["worse"] * 2 + ["within margin"] * 2
    assert "none of 2 comparisons" in words(hypotheses([same]))
    # What stands there is not told once more in the section of the study.
    assert short_contrasts(worse, judged(worse)).rows == ()


@pytest.fixture
def sized(tmp_path: Path) -> Material:
    """One treatment at three sizes, the largest first; the effect shrinks with the seed alone."""
    arms: dict[str, Any] = {"baseline": {}}
    arms |= {f"norm-{size}": {"set": {"model.embedding.norm": "layernorm"}} for size in SIZES}
    arms |= {
        f"base-{size}": {"set": {"model.d_model": 16 * (i + 2)}} for i, size in enumerate(SIZES)
    }
    for i, size in enumerate(SIZES):
        arms[f"norm-{size}"]["set"]["model.d_model"] = 16 * (i + 2)
        arms[f"norm-{size}"]["against"] = f"base-{size}"
    material = material_of(made(tmp_path, "sized", 0.1, arms=arms))
    material.__dict__["parameters_of"] = {
        f"{kind}-{size}": n for size, n in SIZES.items() for kind in ("base", "norm")
    } | {"baseline": 1}
    return material


def test_the_trend_over_sizes_is_the_regression_by_seed(sized: Material) -> None:
    contrasts = {
        size: sized.analysis.contrast(f"norm-{name}", "validation_loss")
        for name, size in SIZES.items()
    }
    effects = np.array([[p.delta for p in c.paired.pairs] for c in contrasts.values() if c.paired])
    slopes = [np.polyfit(np.log10(list(SIZES.values())), e, 1)[0] for e in effects.T]
    interval = stats.ttest_1samp(slopes, 0).confidence_interval(0.95)
    expected = f"{np.mean(slopes):+.4f} [{interval.low:+.4f}, {interval.high:+.4f}]"
    said = words(size_trends([sized]))
    assert expected in said and f"over {len(SEEDS)} seeds" in said and "without" not in said
    assert "sizes, 1,000 to 100,000 parameters" in said


def test_a_study_of_other_things_has_no_trend(tmp_path: Path) -> None:
    assert size_trends([material_of(made(tmp_path, "plain", 0.1))]) is None


def test_rows_of_one_treatment_at_several_sizes_go_by_size(sized: Material) -> None:
    order = dict(reversed(SIZES.items()))
    sized.__dict__["parameters_of"] = {
        f"{kind}-{size}": n
        for size, n in zip(order, SIZES.values(), strict=True)
        for kind in ("base", "norm")
    }
    norms = replace(sized, verdicts=[v for v in sized.verdicts if v.arm.startswith("norm-")])
    norms.__dict__["parameters_of"] = sized.parameters_of
    assert [one.verdict.arm for one in judged(norms)] == [f"norm-{size}" for size in order]


@pytest.mark.parametrize(("shift", "says"), [(-0.2, "lower"), (0.2, "higher"), (0.0, "open")])
def test_sensitivity_to_the_learning_rate_is_tested(shift: float, says: str) -> None:
    seeds = range(1, 9)
    base = {seed: 0.5 + 0.01 * seed for seed in seeds}
    own = {seed: base[seed] + shift + 0.02 * (-1) ** seed for seed in seeds}
    paired = paired_contrast([*base.values()], [*own.values()], seed=0)
    found = (
        SimpleNamespace(arm="baseline", reference=None, values=base, paired=None),
        SimpleNamespace(arm="norm", reference="baseline", values=own, paired=paired),
    )
    rates = [{"training.optimizer.learning_rate": rate} for rate in (1e-2, 1e-3)]
    tuned = SimpleNamespace(sensitivities=found, candidates=rates)
    material: Any = SimpleNamespace(
        name="tuned",
        called={"norm": "norm"},
        analysis=SimpleNamespace(tuned=tuned),
        study=SimpleNamespace(inference=SimpleNamespace(alpha=0.05)),
    )
    part = rate_sensitivity([material])
    said = words(part)
    assert "Over 2 rates from 0.001 to 0.01" in said and f"the sensitivity is {says} in 1: " in said
    ((arm, means, change, _),) = table(part).rows
    assert arm == "tuned: norm" and means == f"0.5450 → {np.mean([*own.values()]):.4f}"
    assert change.startswith(f"{shift:+.4f} [")
    untested: Any = SimpleNamespace(analysis=SimpleNamespace(tuned=None))
    assert rate_sensitivity([untested]) is None


def test_nothing_of_a_legend_or_a_label_is_cut_off_in_print(tmp_path: Path) -> None:
    name = "LayerNorm, 6.4 million parameters"
    arms = {"baseline": {}, "norm": {"set": {"model.embedding.norm": "layernorm"}, "title": name}}
    material = material_of(made(tmp_path, "long", 0.1, arms=arms))
    figure = forest(material.analysis, material.study.primary)
    assert figure is not None
    config = figure.printed(380)["config"]
    assert config["legend"]["labelLimit"] >= len(name) * CHARACTER_PIXELS
    assert config["axis"]["labelLimit"] >= 170
    assert '"labelLimit": 130' not in str(figure.printed(380)).replace("'", '"')


def test_a_chain_of_parts_is_told_part_by_part(tmp_path: Path) -> None:
    """In the section as in the abstract: the parts on top of another in one clause."""
    chain = {"center": None, "fixed_scale": None, "rms_free": "fixed_scale", "rmsnorm": "rms_free"}
    arms: dict[str, Any] = {"baseline": {}}
    for name, against in chain.items():
        arms[name] = {"set": {"model.embedding.norm": name}}
        if against:
            arms[name]["against"] = against
    part = mechanism([material_of(made(tmp_path, "chain", 0.3, arms=arms))], 0)
    said = words(part)
    assert "Taken apart, centring alone is worse (+0.3" in said
    assert "2 further parts on top of another are within the margin (" in said


def test_words_of_a_narrow_table_break_and_intervals_do_not() -> None:
    table = Table("t", "", ("arm", "change"), (("n" * 60, "+0.1234 [+0.1234, +0.1234]"),))
    arm, change = Grid(table).to_dict()["widths"]
    assert change > arm
