"""Endpoints are what code declares: looked up before training, registered, and read by name."""

from pathlib import Path

import pytest

import paribus
from paribus.analysis import analyse
from paribus.decision import decide
from paribus.engine.execution.trial.endpoints import endpoint_metrics
from paribus.metric import Metric
from paribus.report.tables import primary
from paribus.results import ResultsFolder, read_registration
from paribus.study import Study

from ..conftest import studies_in

pytestmark = pytest.mark.usefixtures("one_process")

IDEAS = """
from paribus.engine.evaluation import measure
from paribus.engine.probes import probe

@measure("worst", unit="nats/token", better="lower", label="worst tokens", digits=2)
def worst(predictions):
    losses = predictions.loss_nats
    return losses[losses > 1].sum(), (losses > 1).sum()

def lengths(seq_len):
    return ("length 1", "length 2", "length 4")

def ends(seq_len):
    return ("begin", "end")

@measure("tail", unit="bits", label="loss of the tail", parts=(lengths, ends))
def tail(predictions):
    total = predictions.loss_nats.sum()
    return [[k * total, len(predictions)] for k in (1, 2, 4, 1, 3)]

@probe("quiet", unit="share", better="higher", statistics=("mean", "max"))
def quiet(step):
    return step.tokens.float().mean(dim=(1, 2))[:, None].repeat(1, 2)
"""
OTHERS = ("quiet/all/max", "validation_loss/position 3", "embedding_norm", "grad_norm")


def study_in(folder: Path, *metrics: str, every: dict[str, int] | None = None) -> Study:
    """The small study with these endpoints; the first is primary."""
    (folder / "ideas.py").write_text(IDEAS)
    endpoints = [{"metric": name} for name in metrics]
    endpoints[0] |= {"primary": True, "margin": 0.01}
    return studies_in(folder)(
        endpoints=endpoints,
        evaluation={"own": ["ideas.py:worst", "ideas.py:tail"]},
        probes={"own": ["ideas.py:quiet"], "every": every or {}},
        tasks={"names": []},
        arms={"baseline": {}, "layernorm": {"set": {"model.embedding.norm": "layernorm"}}},
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("endpoints")
    return paribus.run(study_in(folder, "worst", *OTHERS), folder / "r", workers=1)


def test_whatever_is_declared_can_be_an_endpoint(measured):
    worst = Metric("worst", "worst tokens", "nats/token", "lower", "evaluation", 2, of_tokens=True)
    assert measured.metrics["worst"] == worst
    column = measured.metrics["quiet/all/max"]
    assert (column.label, column.unit, column.better) == ("quiet: all, max", "share", "higher")
    assert measured.metrics["embedding_norm"].column == "embedding_norm/all/mean"
    registered = read_registration(ResultsFolder(measured.path))
    assert registered["metrics"]["worst"] == worst.metadata

    first = measured.finished[0]
    row = measured.scores.to_pylist()[0]
    assert row["worst"] == first.read_json("evaluation.json")["worst"]
    rows = first.read_columns("evaluation.parquet").to_pylist()
    parts = {(r["measure"], r["part"]): r["value"] for r in rows}
    assert row["validation_loss/position 3"] == parts["validation_loss", "position 3"]
    probes = first.read_columns("probes.parquet")
    assert row["quiet/all/max"] == probes["quiet/all/max"].to_pylist()[-1]

    analysis = analyse(measured)
    assert analysis.metrics[analysis.study.primary.metric] == worst
    assert analysis.unmeasured == []
    assert all(contrast.by_run for contrast in analysis.contrasts)
    assert "worst tokens" in str(primary(analysis))
    assert decide(analysis)[0].row == "1"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("validation_los", "'validation_loss'"),
        ("quiet/all/min", "'quiet/all/mean'"),
        ("validation_loss/position 99", "'validation_loss/position"),
        ("context_loss", "unknown metric"),
        ("grad_norm", "'grad_norm'"),
    ],
)
def test_what_cannot_be_an_endpoint_is_refused(name, words, tmp_path):
    with pytest.raises(paribus.ParibusError, match=words):
        endpoint_metrics(study_in(tmp_path, name))


OWN_NAMES = """
import torch
from paribus.engine.evaluation import measure
from paribus.engine.probes import probe

@measure({name!r}, unit="share", better="higher")
def own_measure(predictions):
    return predictions.correct.sum(), len(predictions)

@probe({name!r}, unit="share", better="higher")
def own_probe(step):
    return torch.zeros(1)
"""


@pytest.mark.parametrize(
    ("name", "kinds", "words"),
    [
        ("validation_loss", "probes", "probes.own declares .* measures"),
        ("grad_norm", "probes", "probes.own declares .* trainer"),
        ("residual_norm", "evaluation", "evaluation.own declares .* probes"),
        ("mine", "evaluation probes", "probes.own declares .* evaluation.own"),
        ("a/b", "probes", "'a/b'"),
    ],
)
def test_two_numbers_of_one_name_refused(name, kinds, words, tmp_path):
    (tmp_path / "ideas.py").write_text(OWN_NAMES.format(name=name))
    own = {"evaluation": "ideas.py:own_measure", "probes": "ideas.py:own_probe"}
    study = studies_in(tmp_path)(
        tasks={"names": []}, **{kind: {"own": [own[kind]]} for kind in kinds.split()}
    )
    with pytest.raises(paribus.ParibusError, match=words) as caught:
        endpoint_metrics(study)
    assert f"'{name}'" in str(caught.value)


def test_a_primary_endpoint_is_measured(tmp_path):
    study = study_in(tmp_path, "quiet", every={"quiet": 0})
    with pytest.raises(paribus.ParibusError, match=r"probes\.every"):
        endpoint_metrics(study)
