"""The Track 3 example on a made-up history, against SciPy and Holm's method written out."""

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

SCRIPT = Path(__file__).parent.parent.parent / "examples" / "modded-nanogpt-track3" / "track3.py"
LINE = "=" * 100
ROW = "| {} | {}{} | {:.4f} (n={})✓ | words | 2026/05/01 | [log](results/{}) | [PR](x) by y |\n"
# number -> (step, runs, mean loss, marked as a record)
RESULTS = {
    1: (3600, 1, 3.2777, True),
    2: (3500, 6, 3.2780, False),
    3: (3400, 5, 3.2775, True),
    40: (2900, 9, 3.2786, True),
    46: (2690, 8, 3.2783, True),
}


@pytest.fixture
def history(tmp_path):
    """Write a clone, and return its losses by result.

    One result has a single log, one has all trials in one file, and one has copies and another
    program's log in its folder. Two have logs that go on beyond the stated step, one of them with
    a score of its own.
    """
    rng = np.random.default_rng(3)
    track = tmp_path / "records" / "track_3_optimization"
    losses = {
        number: rng.normal(mean, 0.0012, runs).round(5)
        for number, (_, runs, mean, _) in RESULTS.items()
    }

    def trial(step: int, loss: float, beyond: int = 0, score: str = "val_loss") -> str:
        curve = {0: 10.8, 125: 4.5, step - 25: loss + 0.0012 + rng.normal(0, 1e-5), step: loss}
        curve |= {step + beyond: loss - 0.001} if beyond else {}
        return "".join(
            f"step:{at}/{step + beyond} val_loss:{value + (score != 'val_loss'):.5f}"
            + (f" {score}:{value:.5f}" if score != "val_loss" else "")
            + f" train_time:{at + rng.uniform():.3f}s step_avg:1.00ms\n"
            for at, value in curve.items()
        )

    def write(name: str, text: str) -> None:
        file = track / "results" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    write("first.txt", f"code\n{LINE}\n{trial(3600, losses[1][0])}")
    write("many.txt", f"other\n{LINE}\n{''.join(trial(3500, loss, 25) for loss in losses[2])}")
    for number, loss in enumerate(losses[3]):
        text = trial(3400, loss)
        write(f"folder/log{number}.txt", f"mine\n{LINE}\n{text}")
        write(f"folder/out{number}.stdout", text)
    write("folder/another.txt", f"another\n{LINE}\n{trial(3400, 3.29)}")
    for number, loss in enumerate(losses[40]):
        write(f"before/log{number}.txt", f"code\n{LINE}\n{trial(2900, loss, 40)}")
    for number, loss in enumerate(losses[46]):
        write(f"ema/log{number}.txt", f"code\n{LINE}\n{trial(2690, loss, 10, 'val_ema_loss')}")
    logs = ("first.txt", "many.txt", "folder/log0.txt", "before/log0.txt", "ema/log0.txt")
    rows = [
        ROW.format(number, step, "(!)" if is_record else "", losses[number].mean(), runs, log)
        for (number, (step, runs, _, is_record)), log in zip(RESULTS.items(), logs, strict=True)
    ]
    (track / "README.md").write_text("| # | Steps |\n| - | - |\n" + "".join(rows))
    return losses


def holm(p: list[float]) -> np.ndarray:
    order = np.argsort(p)
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(np.sort(p) * np.arange(len(p), 0, -1)).clip(max=1)
    return adjusted


def p_value(test: Any) -> float:
    return float(test.pvalue)


def test_tables_of_a_history(history, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [SCRIPT.name, str(tmp_path)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    printed = capsys.readouterr().out
    assert "5 results, 29 losses" in printed
    cells = [line.strip("| ").split(" | ") for line in printed.splitlines() if line[:1] == "|"]
    rows = {row[0]: row for row in cells if len(row) == 8}
    pairs = {row[0]: row for row in cells if len(row) == 9}

    several = [number for number in RESULTS if RESULTS[number][1] > 1]
    tests = [p_value(stats.ttest_1samp(history[n], 3.28, alternative="less")) for n in several]
    adjusted = dict(zip(several, holm(tests), strict=True))
    for number, (step, runs, _, is_record) in RESULTS.items():
        row = rows[f"{number}(!)" if is_record else str(number)]
        mean = history[number].mean()
        assert row[1:3] == [str(step), str(runs)]
        assert float(row[3]) == pytest.approx(mean, abs=6e-6)
        assert float(row[5]) == pytest.approx((3.28 - mean) * np.sqrt(runs), abs=6e-7)
        assert row[6] == ("yes" if (3.28 - mean) * np.sqrt(runs) >= 0.004 else "no")
        if runs > 1:
            assert float(row[4]) == pytest.approx(history[number].std(ddof=1), abs=6e-6)
            assert float(row[7]) == pytest.approx(adjusted[number], abs=6e-5)
    assert rows["1(!)"][4] == rows["1(!)"][7] == "-"

    gains, welch = [], []
    for old, new in ((1, 3), (3, 40), (40, 46)):
        saved = 0.0045 * (RESULTS[old][0] - RESULTS[new][0]) / 100
        gains.append(history[old].mean() - history[new].mean() + saved)
        if RESULTS[old][1] > 1:
            shifted = history[new] - saved
            test = stats.ttest_ind(shifted, history[old], equal_var=False, alternative="less")
            welch.append(p_value(test))
        row = pairs[str(new)]
        statistic = gains[-1] / np.sqrt(1 / RESULTS[old][1] + 1 / RESULTS[new][1])
        assert float(row[3]) == pytest.approx(gains[-1], abs=6e-6)
        assert float(row[4]) == pytest.approx(statistic, abs=6e-7)
        assert int(row[6]) == int(np.ceil(2 * (0.004 / gains[-1]) ** 2))
    assert [float(pairs[key][8]) for key in ("40", "46")] == pytest.approx(
        holm(welch).tolist(), abs=6e-5
    )
    assert pairs["3"][8] == "-"
