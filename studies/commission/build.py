"""Write the page that answers the commission, its figures and its logs, from the kept records.

    python studies/commission/build.py           # README.md, figures/, logs/
    python studies/commission/build.py --check   # compare README.md with the records

`page.md.jinja` holds the sentences and names each number; `numbers()` computes all numbers from the
records of the kept studies. Figures are drawn from the same records.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import jinja2
import numpy as np
import vl_convert
from scipy import stats

from paribus import analyse, load_results
from paribus.analysis import Analysis, Contrast
from paribus.results import Results

HERE = Path(__file__).resolve().parent
STUDIES = HERE.parent
MINUS = "\N{MINUS SIGN}"
ARMS = {"baseline": "baseline", "layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}
COLOURS = {"baseline": "#7a7a7a", "LayerNorm": "#0072B2", "RMSNorm": "#D55E00"}

# The pilot's claimed numbers, from the commissioning documents: mean, and SD where it was stated.
CLAIMED: dict[str, dict[str, tuple[float, float | None]]] = {
    "validation_perplexity": {
        "baseline": (22.18, 0.90),
        "layernorm": (20.64, 0.81),
        "rmsnorm": (21.88, 0.77),
    },
    "validation_accuracy": {
        "baseline": (0.0533, None),
        "layernorm": (0.0667, None),
        "rmsnorm": (0.0600, None),
    },
    "grad_norm": {
        "baseline": (0.1762, None),
        "layernorm": (0.1783, None),
        "rmsnorm": (0.1706, None),
    },
    "embedding_norm": {
        "baseline": (11.46, None),
        "layernorm": (11.68, None),
        "rmsnorm": (11.59, None),
    },
}
# Digits after the point, and the factor from the recorded unit to the printed one.
FORMATS = {
    "validation_loss": (4, 1),
    "validation_perplexity": (2, 1),
    "validation_accuracy": (4, 1),
    "macro_accuracy": (2, 100),  # percentage points
    "grad_norm": (3, 1),
    "embedding_norm": (2, 1),
    "calibration_error": (4, 1),
    "brier_score": (4, 1),
}
SD_DIGITS = {"embedding_norm": 3}
# Columns of the logs: name, then the probe it is read from.
PROBES = {
    "embedding_norm": "embedding_norm/all/mean",
    "embedding_norm_alphabetic": "embedding_norm/alphabetic/mean",
    "embedding_norm_punctuation": "embedding_norm/punctuation/mean",
    "embedding_norm_whitespace": "embedding_norm/whitespace/mean",
    "residual_norm_block_8": "residual_norm/block 8/mean",
    "embedding_cosine": "embedding_similarity/tokens/plain",
    "position_cosine_block_1": "position_similarity/block 1/plain",
    "grad_norm_embedding": "gradient_norm/embedding/value",
    "grad_norm_attention": "gradient_norm/attention/value",
    "grad_norm_mlp": "gradient_norm/mlp/value",
    "second_moment_embedding": "optimizer_slots/exp_avg_sq embedding/mean",
    "logit_magnitude": "logits/all/mean magnitude",
}
WINDOW_TOKENS = 16 * 128  # a batch of the final protocol


class Kept:
    """A kept study: its records and its analysis."""

    def __init__(self, name: str) -> None:
        self.results: Results = load_results(STUDIES / name)
        self.analysis: Analysis = analyse(self.results)

    def contrast(self, arm: str, metric: str = "validation_loss") -> Contrast:
        return self.analysis.contrast(arm, metric)

    def summary(self, arm: str, metric: str) -> tuple[float, float]:
        """Return mean and SD over seeds."""
        summary = self.analysis.summary(arm, metric)
        assert summary is not None
        values = list(summary.values.values())
        return float(np.mean(values)), float(np.std(values, ddof=1))

    def differences(self, arm: str, reference: str, metric: str) -> list[float]:
        """Return the differences of an arm from a reference at the same seed."""
        rows = self.results.scores.to_pylist()
        scores = {(row["arm"], row["seed"]): row[metric] for row in rows}
        seeds = [seed for name, seed in scores if name == arm]
        return [scores[arm, seed] - scores[reference, seed] for seed in seeds]

    def best_tried(self, arm: str) -> float:
        """Return the mean tuning loss at the best learning rate that was tried."""
        tuned = self.analysis.tuned
        assert tuned is not None
        return min(point.mean for point in tuned.points if point.arm == arm)

    def diverged(self, arm: str) -> tuple[int, int]:
        """Return how many trials of an arm diverged, and how many trials there are."""
        events = [event for (name, _), event in self.analysis.events.items() if name == arm]
        return sum(event.diverged for event in events), len(events)

    def speeds(self, arm: str, kind: str) -> list[float]:
        """Return the tokens per second of each timed turn of an arm."""
        rows = self.results.throughput.to_pylist()
        return [r["tokens"] / r["seconds"] for r in rows if (r["arm"], r["kind"]) == (arm, kind)]


@cache
def kept(name: str) -> Kept:
    """Return a kept study, opened once."""
    return Kept(name)


def signed(value: float, digits: int) -> str:
    """Format a change: `+0.095`."""
    return f"{value:+.{digits}f}".replace("-", MINUS)


def plain(value: float, digits: int) -> str:
    """Format a level: `2.42`."""
    return f"{value:.{digits}f}".replace("-", MINUS)


def change(mean: float, low: float, high: float, digits: int, factor: float = 1) -> str:
    """Format a change with its interval: `+0.095 [+0.090, +0.101]`."""
    mean, low, high = (signed(x * factor, digits) for x in (mean, low, high))
    return f"{mean} [{low}, {high}]"


def p_value(p: float | None) -> str:
    """Format a p value: three decimals, or `<.001`."""
    if p is None:
        return ""
    return "<.001" if p < 0.0005 else f"{p:.3f}".removeprefix("0")


def of_contrast(contrast: Contrast, digits: int, factor: float = 1) -> str:
    """Format the change that a registered contrast found, with its 95% interval."""
    decided = contrast.decided
    assert decided is not None and decided.interval is not None
    interval = decided.interval
    return change(decided.mean, interval.low, interval.high, digits, factor)


def paired_t(differences: Sequence[float], digits: int) -> str:
    """Format the mean of paired differences with its 95% t interval."""
    test = stats.ttest_1samp(differences, 0)
    low, high = test.confidence_interval(0.95)
    return change(float(np.mean(differences)), low, high, digits)


def final_row(metric: str) -> dict[str, Any]:
    """Return one row of the final protocol's table."""
    final, (digits, factor) = kept("embedding-norm"), FORMATS[metric]
    row: dict[str, Any] = {}
    for arm in ARMS:
        mean, sd = (x * factor for x in final.summary(arm, metric))
        row[arm] = f"{plain(mean, digits)} ({plain(sd, SD_DIGITS.get(metric, digits))})"
        row[f"{arm} mean"] = plain(mean, digits)
    for arm in ("layernorm", "rmsnorm"):
        contrast = final.contrast(arm, metric)
        row[f"{arm} change"] = of_contrast(contrast, digits, factor)
        row[f"{arm} p"] = p_value(contrast.holm_p)
    return row


def speed_row(kind: str) -> dict[str, str]:
    """Return one row of the final protocol's table: tokens per second, timed in turn."""
    final, row = kept("embedding-norm"), {}
    for arm in ARMS:
        speeds = final.speeds(arm, kind)
        row[arm] = f"{np.mean(speeds):,.0f} ({np.std(speeds, ddof=1):,.0f})"
    for arm in ("layernorm", "rmsnorm"):
        cost = next(cost for cost in final.analysis.costs if cost.arm == arm)
        slower = cost.prefill if kind == "prefill" else cost.decoding
        interval = slower.interval
        percent = change(-slower.mean, -interval.high, -interval.low, 0, 100)
        row[f"{arm} change"] = f"{percent}%"
    return row


def pilot_row(metric: str) -> dict[str, list[str]]:
    """Return claimed and measured values of one metric, arm by arm."""
    pilot, digits = kept("embedding-norm-pilot"), FORMATS[metric][0]
    claimed = []
    for mean, sd in CLAIMED[metric].values():
        # The digits in which the value was claimed.
        text = f"{mean:.4f}" if mean < 1 else f"{mean:.2f}"
        claimed.append(f"{text} ({sd:.2f})" if sd is not None else text)
    row = {"claimed": claimed}
    for column, suffix in {"gpt2": "", "unit": "-unit", "unit-4": "-4-unit"}.items():
        summaries = [pilot.summary(arm + suffix, metric) for arm in ARMS]
        sd_digits = SD_DIGITS.get(metric, digits)
        row[column] = [f"{plain(m, digits)} ({plain(sd, sd_digits)})" for m, sd in summaries]
    return row


# Cells of the factorial: what the table calls them, and how the names of their arms end.
CELLS = {
    ("tied", "warmup"): "-warm",
    ("untied", "warmup"): "-untied-warm",
    ("untied", "no warmup"): "-untied",
    ("tied", "no warmup"): "",
}
HALVES = {"300": "embedding-factorial", "1,500": "embedding-factorial-long"}


def factorial_rows() -> list[dict[str, str]]:
    """Return the eight rows of the factorial's table."""
    rows = []
    for (output, warmup), suffix in CELLS.items():
        for budget, name in HALVES.items():
            half, norm = kept(name), "layernorm" + suffix
            contrast = half.contrast(norm)
            best = half.best_tried(norm) - half.best_tried("none" + suffix)
            factor, steps = (half.contrast(arm + suffix) for arm in ("factor", "steps"))
            rows.append(
                {
                    "output": output,
                    "warmup": warmup,
                    "budget": budget,
                    "change": of_contrast(contrast, 3),
                    "p": p_value(contrast.holm_p),
                    "best": signed(best, 3),
                    "factor": of_contrast(factor, 3),
                    "steps": of_contrast(steps, 3),
                    "row": criteria_row(half, norm),
                }
            )
    return rows


def criteria_row(half: Kept, arm: str) -> str:
    """Apply the commissioned criteria to a contrast: keep the baseline, or adopt.

    The baseline of every cell of the factorial is stable, so that no norm can cure instability,
    and the criteria keep the baseline. The reason depends on the test loss.
    """
    contrast, stability = half.contrast(arm), half.analysis.stability(arm)
    assert contrast.decided is not None and contrast.holm_p is not None and stability is not None
    if stability.any_event.baseline_events:
        raise ValueError(
            f"a baseline run of {arm} was unstable: the criteria need a test of events"
        )
    if contrast.holm_p > 0.05:
        return "keep: not resolved"
    return "keep: it is worse" if contrast.decided.mean > 0 else "keep: it gains, cures nothing"


EDGES = ("-tied-cold", "-tied-warm", "-untied-warm")


def initial_norm(arm: str) -> str:
    """Return the mean embedding norm in the first step of the final protocol."""
    column = PROBES["embedding_norm"]
    trials = [t for t in kept("embedding-norm").results.finished if t.arm == arm]
    first = [t.read_columns("probes.parquet", [column])[column][0].as_py() for t in trials]
    return plain(float(np.mean(first)), 2)


def chance() -> str:
    """Return the macro accuracy of guessing, in per cent: the mean over tasks."""
    rows = kept("embedding-norm").results.tasks.to_pylist()
    tasks = {row["task"]: row["chance"] for row in rows}
    return plain(100 * float(np.mean(list(tasks.values()))), 0)


def numbers() -> dict[str, Any]:
    """Compute every number of the page."""
    final, accuracy = kept("embedding-norm"), kept("embedding-accuracy")
    edge = kept("embedding-norm-edge")
    halves = {budget: kept(name) for budget, name in HALVES.items()}
    metrics = [endpoint.metric for endpoint in final.results.study.endpoints]
    same = final.differences("rmsnorm", "layernorm", "validation_loss")
    pooled = halves["300"].differences(
        "layernorm-untied-warm", "none-untied-warm", "validation_loss"
    ) + accuracy.differences("layernorm-untied", "none-untied", "validation_loss")
    loss = final.contrast("layernorm")
    assert loss.decided is not None
    return {
        "final": {metric: final_row(metric) for metric in metrics},
        "speed": {kind: speed_row(kind) for kind in ("prefill", "decoding")},
        "pilot": {metric: pilot_row(metric) for metric in CLAIMED},
        "factorial": factorial_rows(),
        "rms_against_layernorm": paired_t(same, 4),
        "loss_change": of_contrast(loss, 3),
        "perplexity_ratio": plain(100 * (math.exp(loss.decided.mean) - 1), 0),
        "pooled": paired_t(pooled, 3),
        "pooled_seeds": len(pooled),
        "long_untied": of_contrast(halves["1,500"].contrast("layernorm-untied-warm"), 3),
        "accuracy": {
            arm: of_contrast(accuracy.contrast(arm, "macro_accuracy"), 1, 100)
            for arm in ("layernorm", "rmsnorm", "layernorm-untied", "rmsnorm-untied")
        },
        "accuracy_p": {
            arm: p_value(accuracy.contrast(arm, "macro_accuracy").holm_p)
            for arm in ("layernorm", "rmsnorm", "layernorm-untied", "rmsnorm-untied")
        },
        "accuracy_seeds": len(accuracy.results.study.seeds),
        "final_diverged": {arm: final.diverged(arm) for arm in ARMS},
        "edge_pairs": {
            norm: ", ".join(
                f"{edge.diverged(norm + setting)[0]} against {edge.diverged('none' + setting)[0]}"
                for setting in EDGES
            )
            for norm in ("layernorm", "rmsnorm")
        },
        "edge_holm": plain(min(s.holm_p for s in edge.analysis.stabilities), 3),
        "edge_seeds": len(edge.results.study.seeds),
        "initial_norm": {arm: initial_norm(arm) for arm in ARMS},
        "chance": chance(),
        "untied_loss": of_contrast(accuracy.contrast("layernorm-untied"), 3),
        "untied_loss_p": p_value(accuracy.contrast("layernorm-untied").holm_p),
        "warmup_alone": signed(
            halves["1,500"].summary("none-untied-warm", "validation_loss")[0]
            - halves["1,500"].summary("none-untied", "validation_loss")[0],
            3,
        ),
        "larger": {
            arm: of_contrast(kept("embedding-larger-cpu").contrast(arm), 3)
            for arm in ("layernorm-warm", "layernorm-untied")
        },
        "center": of_contrast(halves["300"].contrast("center-warm"), 3),
        "factor": of_contrast(halves["300"].contrast("factor-warm"), 3),
        "norm": of_contrast(halves["300"].contrast("layernorm-warm"), 3),
        "norm_long": of_contrast(halves["1,500"].contrast("layernorm-warm"), 3),
        "cold_untied": of_contrast(halves["300"].contrast("layernorm-untied"), 3),
        "cold_untied_long": of_contrast(halves["1,500"].contrast("layernorm-untied"), 3),
        "steps": of_contrast(halves["300"].contrast("steps-warm"), 3),
        "steps_long": of_contrast(halves["1,500"].contrast("steps-warm"), 3),
        "steps_untied_long": of_contrast(halves["1,500"].contrast("steps-untied-warm"), 3),
    }


def render() -> str:
    """Return the page, with every number computed from the records."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    template = environment.from_string((HERE / "page.md.jinja").read_text(encoding="utf-8"))
    return template.render(numbers())


def log(arm: str) -> str:
    """Return the training log of an arm of the final protocol as CSV: a row per seed and step."""
    results = kept("embedding-norm").results
    curves = {
        (row["arm"], row["seed"], row["step"]): row["loss"] for row in results.curve.to_pylist()
    }
    header = [
        "seed",
        "step",
        "tokens",
        "train_loss",
        "validation_loss",
        "learning_rate",
        "grad_norm",
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*header, *PROBES])
    for trial in results.finished:
        if trial.arm != arm:
            continue
        steps = trial.read_columns("steps.parquet").to_pylist()
        probes = trial.read_columns("probes.parquet", list(PROBES.values())).to_pylist()
        for row, probed in zip(steps, probes, strict=True):
            step = row["step"]
            # `step` counts finished steps; the held-out loss is measured after some of them.
            held_out = curves.get((arm, trial.seed, step))
            values = [row["train_loss"], held_out, row["learning_rate"], row["grad_norm"]]
            values += [probed[name] for name in PROBES.values()]
            printed = ["" if value is None else f"{value:.6g}" for value in values]
            writer.writerow([trial.seed, step, step * WINDOW_TOKENS, *printed])
    return text.getvalue()


def line_panel(
    rows: list[dict[str, Any]], title: str, *, log_scale: bool = False
) -> alt.LayerChart:
    """Draw a quantity over steps: thin lines for seeds, a thick line for each arm's mean."""
    names = list(ARMS.values())
    data = alt.Data(values=rows)
    x = alt.X("step:Q", title="iterations", axis=alt.Axis(tickCount=4))
    scale = alt.Scale(type="log", nice=False) if log_scale else alt.Scale(zero=False)
    colour = alt.Color(
        "arm:N", scale=alt.Scale(domain=names, range=list(COLOURS.values())), title=None
    )
    dash = alt.StrokeDash(
        "arm:N", scale=alt.Scale(domain=names, range=[[1, 0], [1, 0], [5, 4]]), title=None
    )
    seeds = (
        alt.Chart(data)
        .mark_line(strokeWidth=0.6, opacity=0.35)
        .encode(x, alt.Y("value:Q", scale=scale, title=None), colour, detail="seed:N")
    )
    mean = (
        alt.Chart(data)
        .mark_line(strokeWidth=2.2)
        .encode(x, alt.Y("mean(value):Q", scale=scale, title=None), colour, dash)
    )
    return (seeds + mean).properties(width=230, height=200, title=title)


def training_figure() -> alt.HConcatChart:
    """Draw loss, gradient norm and embedding norm over training."""
    results = kept("embedding-norm").results
    curve = [
        {"arm": ARMS[r["arm"]], "seed": r["seed"], "step": r["step"], "value": r["loss"]}
        for r in results.curve.to_pylist()
    ]
    gradients = [
        {"arm": ARMS[r["arm"]], "seed": r["seed"], "step": r["step"], "value": r["grad_norm"]}
        for r in results.steps.to_pylist()
        if r["step"] % 3 == 0  # of 4,500 points
    ]
    norms = []
    for trial in results.finished:
        table = trial.read_columns("probes.parquet", ["step", PROBES["embedding_norm"]])
        for row in table.to_pylist()[::3]:
            value = row[PROBES["embedding_norm"]]
            norms.append(
                {"arm": ARMS[trial.arm], "seed": trial.seed, "step": row["step"], "value": value}
            )
    panels = [
        line_panel(curve, "loss of 2,048 held-out tokens (nats)"),
        line_panel(gradients, "total gradient norm", log_scale=True),
        line_panel(norms, "norm entering block 1", log_scale=True),
    ]
    return alt.hconcat(*panels)


def calibration_figure() -> alt.LayerChart:
    """Draw accuracy against confidence of next-token predictions."""
    results = kept("embedding-norm").results
    bins: dict[tuple[str, str], dict[str, list[float]]] = {}
    measures = {"reliability_confidence": "confidence", "reliability_accuracy": "accuracy"}
    for row in results.evaluation.to_pylist():
        if row["measure"] in measures:
            point = bins.setdefault((ARMS[row["arm"]], row["part"]), {})
            point.setdefault(measures[row["measure"]], []).append(row["value"])
    rows = [
        {
            "arm": arm,
            "bin": int(part.split()[-1]),
            **{name: float(np.mean(v)) for name, v in p.items()},
        }
        for (arm, part), p in bins.items()
    ]
    names = list(ARMS.values())
    domain = alt.Scale(domain=[0, 1])
    diagonal = (
        alt.Chart(alt.Data(values=[{"x": 0, "y": 0}, {"x": 1, "y": 1}]))
        .mark_line(color="#999", strokeDash=[3, 3])
        .encode(alt.X("x:Q", title="confidence"), alt.Y("y:Q", title="accuracy"))
    )
    base = alt.Chart(alt.Data(values=sorted(rows, key=lambda row: row["bin"]))).encode(
        alt.X("confidence:Q", scale=domain, title="confidence"),
        alt.Y("accuracy:Q", scale=domain, title="accuracy"),
        alt.Color("arm:N", scale=alt.Scale(domain=names, range=list(COLOURS.values())), title=None),
        alt.Shape("arm:N", scale=alt.Scale(domain=names), title=None),
    )
    return (
        diagonal + base.mark_line(strokeWidth=1.2) + base.mark_point(filled=True, size=45)
    ).properties(
        width=330, height=300, title="Calibration of next-token predictions, mean of 5 seeds"
    )


TREATMENTS = {
    "center": "subtract the mean only",
    "factor": "multiply by 35.4 only",
    "rmsnorm": "RMSNorm",
    "layernorm": "LayerNorm",
}


def scale_figure() -> alt.HConcatChart:
    """Draw the change of test loss by treatment, tied and untied, with warmup."""
    panels = []
    for output, suffix in {"tied": "-warm", "untied": "-untied-warm"}.items():
        rows = []
        for budget, name in HALVES.items():
            for arm, title in TREATMENTS.items():
                decided = kept(name).contrast(arm + suffix).decided
                assert decided is not None and decided.interval is not None
                interval = {"low": decided.interval.low, "high": decided.interval.high}
                rows.append(
                    {"treatment": title, "budget": f"{budget} iterations", "mean": decided.mean}
                    | interval
                )
        budgets = [f"{budget} iterations" for budget in HALVES]
        base = alt.Chart(alt.Data(values=rows)).encode(
            alt.Y("treatment:N", sort=list(TREATMENTS.values()), title=None),
            alt.YOffset("budget:N", sort=budgets),
            alt.Color(
                "budget:N",
                scale=alt.Scale(domain=budgets, range=["#E69F00", "#009E73"]),
                title=None,
            ),
        )
        domain = alt.Scale(domain=[-0.07, 0.14])
        bars = base.mark_rule(strokeWidth=1.8).encode(
            alt.X("low:Q", scale=domain, title="change of test loss (nats/token)"), alt.X2("high:Q")
        )
        points = base.mark_point(filled=True, size=55).encode(
            alt.X("mean:Q", scale=domain),
            alt.Shape("budget:N", scale=alt.Scale(domain=budgets), title=None),
        )
        zero = (
            alt.Chart(alt.Data(values=[{"x": 0}]))
            .mark_rule(strokeDash=[3, 3], color="#888")
            .encode(alt.X("x:Q", scale=domain))
        )
        title = f"{output} embeddings, with warmup"
        panels.append((zero + bars + points).properties(width=270, height=170, title=title))
    return alt.hconcat(*panels)


def svg(chart: alt.TopLevelMixin) -> str:
    """Return a chart as SVG on white."""
    configured = chart.configure(background="white", font="Liberation Sans")
    configured = configured.configure_legend(orient="top", labelFontSize=12, symbolOpacity=1)
    return vl_convert.vegalite_to_svg(configured.to_dict())


def build() -> None:
    """Write the page, the figures and the logs."""
    (HERE / "README.md").write_text(render(), encoding="utf-8")
    for folder in ("figures", "logs"):
        (HERE / folder).mkdir(exist_ok=True)
    figures = {
        "training": training_figure(),
        "calibration": calibration_figure(),
        "scale": scale_figure(),
    }
    for name, chart in figures.items():
        (HERE / "figures" / f"{name}.svg").write_text(svg(chart), encoding="utf-8")
    for arm in ARMS:
        (HERE / "logs" / f"{arm}.csv").write_text(log(arm), encoding="utf-8")


def differences() -> Iterable[str]:
    """Yield the lines of README.md that differ from what the records give."""
    written = (HERE / "README.md").read_text(encoding="utf-8").splitlines()
    computed = render().splitlines()
    for number in range(max(len(written), len(computed))):
        pair = [lines[number] if number < len(lines) else "" for lines in (written, computed)]
        if pair[0] != pair[1]:
            yield f"line {number + 1}: written: {pair[0]}\n    computed: {pair[1]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare README.md with the records")
    if not parser.parse_args().check:
        build()
        return 0
    lines = list(differences())
    print("\n".join(lines) or "README.md agrees with the records")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
