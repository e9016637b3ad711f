"""An arm's own code runs in processes of its own: what it does to a library, it does to itself."""

from __future__ import annotations

from pathlib import Path

import paribus

from ..conftest import Maker

# It changes the code inside a function of a library that all arms share, whose identity stays the
# same.
MEDDLES = """
from paribus.engine.model.mlps.ungated import GELU
from torch.nn import functional

class Mine(GELU):
    pass

def sharper(input, target, a=None, b=None, c=-100, d=None, reduction="mean", e=0.0):
    return nll_loss(log_softmax(2 * input, dim=-1), target, reduction=reduction)

functional.cross_entropy.__code__ = sharper.__code__
"""


def test_an_arm_that_meddles_changes_no_other(small_study: Maker, tmp_path: Path) -> None:
    (tmp_path / "ideas.py").write_text(MEDDLES)
    arms = {
        "mine": {"set": {"model.modules.mlp": "ideas.py:Mine"}},
        "baseline": {},
        "layernorm": {"set": {"model.embedding.norm": "layernorm"}},
    }
    with_it = paribus.run(small_study(seeds=[1], arms=arms), tmp_path / "with", workers=1)
    del arms["mine"]
    without = paribus.run(small_study(seeds=[1], arms=arms), tmp_path / "without", workers=1)
    for arm in arms:
        for name in ("weights.safetensors", "steps.parquet", "evaluation.json"):
            ours = (with_it.path / "trials" / arm / "seed-1" / name).read_bytes()
            assert ours == (without.path / "trials" / arm / "seed-1" / name).read_bytes()
    rows = {row["arm"]: row["validation_loss"] for row in with_it.scores.to_pylist()}
    assert rows["mine"] != rows["baseline"]
    assert set(with_it.throughput["arm"].to_pylist()) == {"mine", "baseline", "layernorm"}
