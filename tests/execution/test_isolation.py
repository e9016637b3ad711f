"""An arm's own code runs in processes of its own: what it does to a library, it does to itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import paribus
from paribus.engine.execution.workers.pool import Pool, Worker, code_of
from paribus.study import Study

Maker = Callable[..., Study]

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
    """One worker, so that they would share a process; records of the others are the same bytes."""
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


def test_what_code_a_setting_needs(small_study: Maker) -> None:
    modules = {"model.modules.mlp": "a.py:A", "model.modules.block_norm": "b.py:B"}
    arms = {
        "baseline": {},
        "both": {"set": modules},
        "one": {"set": {"model.modules.mlp": "a.py:A"}},
        "other": {"set": {"model.modules.mlp": "a.py:B"}},
    }
    study = small_study(arms=arms)
    codes = [code_of(study.setting(arm)) for arm in arms]
    assert codes == ["", "a.py:A b.py:B", "a.py:A", "a.py:B"]


class _Idle(Pool):
    """A pool whose workers are no processes."""

    def start(self, number: int | None = None, *, is_fresh: bool = False) -> Worker:
        worker = Worker(len(self.workers) if number is None else number)
        self.workers.append(worker)
        return worker


def test_who_serves_whom(small_study: Maker, tmp_path: Path) -> None:
    arms = {name: {"set": {"model.modules.mlp": f"{name}.py:A"}} for name in "ab"}
    study = small_study(arms={"baseline": {}} | arms)
    plain, a, b = (study.setting(arm) for arm in ("baseline", "a", "b"))
    pool = _Idle(study, tmp_path, device="cpu", checkpoint_seconds=0)
    first = pool.start()
    assert pool.worker_for(plain) is first  # it has loaded nothing, and may serve anyone
    assert pool.worker_for(a) is first
    assert pool.worker_for(a) is first
    second = pool.worker_for(plain)
    assert second is not first
    assert pool.worker_for(b) is second
    third = pool.worker_for(plain)
    assert third not in (first, second)
    assert pool.worker_for(a) is first
    # A GPU that a busy worker has is left to it.
    assert (first.number, second.number) == (0, 0)
    other = pool.worker_for(a, busy=[second])
    assert other.number == 1
    assert other is not first
