"""Probes of a whole run: the user's own, cadences, what goes wrong, and the tables they end in."""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

import paribus
from paribus.results.read import tidy_probes
from paribus.study import Study

from ..conftest import studies_in

pytestmark = pytest.mark.usefixtures("one_process")

GOOD = """
from paribus.engine.probes import probe

@probe("quiet", unit="share", modules=("blocks.0.mlp.up",))
def quiet(step):
    return (step.outputs["blocks.0.mlp.up"] < 0).float().mean(dim=(1, 2, 3))

@probe("tires", unit="1")
def tires(step):
    if step.t == 5:
        raise RuntimeError("tired")
    return step.tokens.float().mean(dim=(1, 2))

"""


def study_in(folder: Path, *own: str, **every: int) -> Study:
    """The small study with probes of GOOD, at cadences `every`."""
    (folder / "ideas.py").write_text(GOOD)
    overrides = {"probes.own": [f"ideas.py:{name}" for name in own], "probes.every": every}
    return studies_in(folder)(overrides)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A run with two own probes, one of which fails in the middle; `ideas.py` lies beside it."""
    folder = tmp_path_factory.mktemp("measured")
    study = study_in(folder, "quiet", "tires", quiet=4, logits=0, residual_norm=3)
    return paribus.run(study, folder / "r", workers=1)


def test_an_own_probe_is_measured_and_recorded(measured):
    results, study = measured, measured.study
    table = results.probes
    assert table.column_names == [
        *("arm", "seed", "step", "probe", "part", "statistic", "value", "unit")
    ]
    assert table["value"].null_count == 0
    assert not pc.any(pc.is_nan(table["value"])).as_py()

    own = table.filter(pc.equal(table["probe"], "quiet")).to_pylist()
    assert len(own) == len(study.trials) * 3  # steps 1, 5 and the last of 8
    assert {row["step"] for row in own} == {1, 5, 8}
    assert {(row["part"], row["statistic"], row["unit"]) for row in own} == {
        ("all", "value", "share")
    }
    assert all(0 < row["value"] < 1 for row in own)
    assert "logits" not in table["probe"].to_pylist()
    residual = table.filter(pc.equal(table["probe"], "residual_norm"))
    assert set(residual["part"].to_pylist()) == {"block 1", "block 2", "output"}
    assert set(residual["step"].to_pylist()) == {1, 4, 7, 8}

    # The baseline has no embedding norm, and so no row for it; the small text has no digits.
    gains = table.filter(pc.equal(table["probe"], "embedding_gain"))
    assert set(zip(gains["arm"].to_pylist(), gains["part"].to_pylist(), strict=True)) == {
        ("layernorm", "gain"),
        ("layernorm", "bias"),
        ("rmsnorm", "gain"),
    }
    assert "numeric" not in table["part"].to_pylist()

    # Squares of the groups' norms add up to that of the total.
    first = results.finished[0]
    groups = table.filter(
        pc.and_(
            pc.and_(pc.equal(table["arm"], first.arm), pc.equal(table["seed"], first.seed)),
            pc.and_(pc.equal(table["probe"], "gradient_norm"), pc.equal(table["step"], 8)),
        )
    )
    total = results.trial_steps[first.arm, first.seed]["grad_norm"][7].as_py()
    assert np.linalg.norm(groups["value"].to_numpy()) == pytest.approx(total, rel=1e-5)
    trial = results.trials[first.arm, first.seed]
    assert list(trial["own_probes"]) == ["ideas.py:quiet", "ideas.py:tires"]
    field = first.read_columns("probes.parquet").schema.field("quiet/all/value")
    assert field.metadata[b"unit"] == b"share"


def test_a_probe_that_fails_in_the_middle_costs_its_value_and_no_more(measured):
    results = measured
    assert len(results.finished) == 6
    of_one = tidy_probes(results.read_each("probes.parquet")["baseline", 1])
    of_one = of_one.filter(pc.equal(of_one["probe"], "tires"))
    assert of_one["step"].to_pylist() == [1, 2, 3, 4, 5, 7, 8]
