"""What can be said of reported values: do they fit a model, and can they be?"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from paribus.analysis import analyse
from paribus.analysis.claims import check_claims, check_share
from paribus.cli.printed import comparison
from paribus.engine.model import count_parameters
from paribus.metric import Metric
from paribus.report.tables import claims as claims_table
from paribus.results import Results
from paribus.study import Claim, Study, load_study

from ..studies.scripts import HOME

Maker, Fabricate = Callable[..., Study], Callable[..., Results]
SHAKESPEARE_CHARACTERS = 65
PILOT = HOME / "embedding-norm-pilot.toml"
needs_checkout = pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")

ACCURACY = Metric("validation_accuracy", "next-token accuracy", "share", "higher", "evaluation")


@needs_checkout
def test_the_pilots_shares_are_8_9_and_10_of_150() -> None:
    claims = load_study(PILOT).claims
    assert claims is not None
    found = dict.fromkeys(filter(None, (check_share(claim, ACCURACY) for claim in claims.values)))
    assert list(found) == [
        "A next-token accuracy of 0.0533 is 8 of 150 items.",
        "A next-token accuracy of 0.0667 is 10 of 150 items.",
        "A next-token accuracy of 0.0600 is 9 of 150 items.",
    ]


@needs_checkout
def test_the_pilot_has_the_depth_that_fits_its_claimed_size() -> None:
    study = load_study(PILOT)
    assert study.claims is not None and study.claims.parameters == 800_000
    sizes = {
        arm: count_parameters(study.setting(arm), SHAKESPEARE_CHARACTERS, study.folder)
        for arm in ("baseline", "baseline-4")
    }
    assert sizes == {"baseline": 1_611_136, "baseline-4": 818_048}
    for claim in study.claims.values:
        assert len({study.setting(arm).model.n_layer for arm in claim.arms}) == 2
    assert study.reference("layernorm-4-unit") == "baseline-4-unit"
    assert study.reference("baseline-4") is None


@pytest.mark.parametrize(
    ("mean", "digits", "says"),
    [
        (0.0534, None, "0.0534 is no share of 150 items: the nearest, 8 of 150, is 0.0533."),
        (0.06, None, "0.06 is 9 of 150 items."),
        (0.1, 1, "0.1 is 8 to 22 of 150 items."),
    ],
)
def test_a_share_that_cannot_be_is_named(mean: float, digits: int | None, says: str) -> None:
    claim = Claim(
        arms=("baseline",), metric="validation_accuracy", mean=mean, items=150, digits=digits
    )
    assert check_share(claim, ACCURACY).endswith(says)
    assert check_share(claim, replace(ACCURACY, unit="nats/token")) == ""


def test_checks_stand_wherever_claims_are_shown(small_study: Maker, fabricate: Fabricate) -> None:
    claims = {
        "source": "somebody",
        "parameters": 1000,
        "values": [
            {"arms": ["baseline"], "metric": "validation_accuracy", "mean": 0.0534, "items": 150}
        ],
    }
    results = fabricate(small_study(claims=claims), lambda arm, seed: 2.5)
    for size, fits in ((1040, "fit"), (1060, "do not fit")):
        trials = {key: trial | {"parameters": size} for key, trial in results.trials.items()}
        sized = replace(results, trials=trials)
        said = f"The reported 1,000 parameters {fits} baseline: {size:,}."
        assert check_claims(sized)[0] == said
    analysis = replace(analyse(results), claim_checks=check_claims(sized))
    table, console = claims_table(analysis), Console(width=80, file=io.StringIO())
    for part in comparison(analysis):
        console.print(part)
    shown = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    for text in (table.caption if table else "", shown):
        assert said in text and "is no share of 150 items" in text
    assert analysis.to_dict()["claim_checks"]
