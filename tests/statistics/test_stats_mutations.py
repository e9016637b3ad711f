"""The known answers can fail: wrong statistics, written on purpose, are caught by them.

Each mutant is a fresh copy of the package whose source has one expression replaced. The same
assertions pass on an untouched copy.
"""

import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import paribus.statistics

DRUG_1 = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
DRUG_2 = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
GAINS = [0.1, 0.2, 0.3, 0.4, 0.5]


@contextmanager
def copy_of_package(tmp_path: Path, file: str, old: str, new: str) -> Iterator[ModuleType]:
    """Import a copy of the package under another name, with `old` replaced in one file."""
    source = Path(paribus.statistics.__file__).parent
    name = "mutant_statistics"
    folder = tmp_path / name
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))
    if old:
        text = (folder / file).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in {file}"
        (folder / file).write_text(text.replace(old, new), encoding="utf-8")
    sys.path.insert(0, str(tmp_path))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(tmp_path))
        for loaded in [m for m in sys.modules if m.split(".")[0] == name]:
            del sys.modules[loaded]


def sleep_t(st: ModuleType) -> None:
    test = st.paired_t(st.paired_deltas(DRUG_2, DRUG_1))
    assert test.statistic() == pytest.approx(-4.062128, abs=5e-7)


def sleep_p(st: ModuleType) -> None:
    test = st.paired_t(st.paired_deltas(DRUG_2, DRUG_1))
    assert test.p_value() == pytest.approx(0.00283289, abs=5e-9)


def sleep_sign_flip(st: ModuleType) -> None:
    assert st.sign_flip(st.paired_deltas(DRUG_2, DRUG_1), seed=0).p_value == 4 / 1024


def sleep_equivalence(st: ModuleType) -> None:
    tost = st.paired_contrast(DRUG_2, DRUG_1, margin=3, seed=0).decided
    assert tost.equivalence_p == pytest.approx(0.00265557, abs=5e-9)


def sleep_hedges(st: ModuleType) -> None:
    effect = st.effect_size(st.paired_deltas(DRUG_2, DRUG_1))
    assert effect.g_z == pytest.approx(-1.173925, abs=5e-7)


def five_values(st: ModuleType) -> None:
    baseline = [3.0, 1.0, 2.0, 5.0, 4.0]
    result = st.paired_contrast(baseline, np.add(baseline, GAINS), seed=0)
    interval = result.percentile_interval_descriptive
    assert (interval.low, interval.high) == pytest.approx((0.18, 0.42), abs=1e-12)


def studentized_by_hand(st: ModuleType) -> None:
    assert st.paired_bootstrap([0, 1, 5], seed=0).p_value() == pytest.approx(2 / 27, abs=1e-15)


def holm_four(st: ModuleType) -> None:
    expected = [0.03, 0.06, 0.06, 0.02]
    np.testing.assert_allclose(st.holm([0.01, 0.04, 0.03, 0.005]), expected, rtol=1e-14)


def mcnemar_six(st: ModuleType) -> None:
    assert st.mcnemar(0, 6) == pytest.approx(0.03125, abs=1e-15)


def pairs_for_power(st: ModuleType) -> None:
    assert [st.required_pairs(d_z) for d_z in (0.5, 1.0, 1.5, 2.0)] == [34, 10, 6, 5]


Check = Callable[[ModuleType], None]
MUTANTS: dict[str, tuple[str, str, str, Check]] = {
    "SD with n for n - 1": ("paired.py", "/ (deltas.size - 1))", "/ deltas.size)", sleep_t),
    "t of one tail": (
        "paired.py",
        "2 * stdtr(self.df, -abs(_t(self, null)))",
        "stdtr(self.df, -abs(_t(self, null)))",
        sleep_p,
    ),
    "arms resampled apart": (
        # Which is what pairing seeds at random does to the differences.
        "paired.py",
        "deltas = treatment - baseline",
        "deltas = treatment - np.random.default_rng(0).permutation(baseline)",
        five_values,
    ),
    "bootstrap of one tail": (
        "bootstrap.py",
        "2 * min(self._statistics.tails(self.t.statistic(null)))",
        "min(self._statistics.tails(self.t.statistic(null)))",
        studentized_by_hand,
    ),
    "zero-SD resamples dropped": (
        "bootstrap.py",
        "np.where(np.abs(shifts) > TIE, np.copysign(np.inf, shifts), 0.0)",
        "0.0 * shifts",
        studentized_by_hand,
    ),
    "multiplicities ignored": (
        "bootstrap.py",
        "math.factorial(n) // math.prod(map(math.factorial, row))",
        "1",
        five_values,
    ),
    "sign flip of one tail": (
        "multiplicity.py",
        "(np.abs(sums) >= observed - TIE)",
        "(sums >= observed - TIE)",
        sleep_sign_flip,
    ),
    "Holm from the largest": (
        "multiplicity.py",
        "np.arange(p.shape[-1], 0, -1)",
        "np.arange(1, p.shape[-1] + 1)",
        holm_four,
    ),
    "Holm without the running maximum": (
        "multiplicity.py",
        "np.maximum.accumulate(stepped, axis=-1)",
        "stepped",
        holm_four,
    ),
    "McNemar of one tail": ("proportions.py", "2 * float(bdtr(", "float(bdtr(", mcnemar_six),
    "TOST that needs one side": (
        "deciding.py",
        "max(p_low, p_high)",
        "min(p_low, p_high)",
        sleep_equivalence,
    ),
    "Hedges on n for n - 1": (
        "paired.py",
        "hedges_correction(test.df)",
        "hedges_correction(test.n)",
        sleep_hedges,
    ),
    "power of the other tail's level": ("power.py", '"alpha") / 2)', '"alpha"))', pairs_for_power),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_known_answer_fails_under_the_mutant_and_only_there(mutant: str, tmp_path: Path) -> None:
    file, old, new, check = MUTANTS[mutant]
    check(paribus.statistics)
    with copy_of_package(tmp_path, file, old, new) as mutated, pytest.raises(AssertionError):
        check(mutated)


def test_an_unmutated_copy_passes_every_check(tmp_path: Path) -> None:
    with copy_of_package(tmp_path, "none", "", "") as copy:
        assert copy is not paribus.statistics
        for *_, check in MUTANTS.values():
            check(copy)
