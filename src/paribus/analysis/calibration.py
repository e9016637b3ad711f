"""What the tests do where there is nothing to find: error rates measured on A/A studies."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from paribus.analysis.infer import infer
from paribus.analysis.table import Table
from paribus.errors import ParibusError
from paribus.results import Results
from paribus.statistics import Interval, PairedContrast, clopper_pearson
from paribus.study.null import AGAIN


@dataclass(frozen=True)
class Rate:
    """How often something happened in `n` replicates, with an exact binomial interval."""

    name: str
    nominal: float
    count: int
    n: int
    interval: Interval

    @property
    def rate(self) -> float:
        return self.count / self.n


@dataclass(frozen=True)
class Calibration:
    """Measured error rates of the primary endpoint's tests.

    Attributes:
        pairs: seed pairs of each replicate.
        rates: false positives and coverage.
        skipped: replicates with a trial that is not finished or diverged.
        p_values: the gate p of every replicate.
    """

    metric: str
    pairs: int
    rates: tuple[Rate, ...]
    skipped: int
    p_values: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {
            "rates": [asdict(rate) | {"rate": rate.rate} for rate in self.rates],
            "p_values": list(self.p_values),
        }


def calibrate(results: Results, pairs: int) -> Calibration:
    """Error rates over the replicates of a `null_study`, each of `pairs` seeds.

    Raises ParibusError where no replicate is complete.
    """
    study = results.study
    metric, alpha = study.primary.metric, study.inference.alpha
    broken = [control.name for control in results.controls if control.state == "broken"]
    if broken:
        raise ParibusError(f"controls of {results.path} are broken: {', '.join(broken)}")
    table = Table.of(results)
    baseline, again = table.usable(study.baseline, metric), table.usable(AGAIN, metric)
    contrasts: list[PairedContrast] = []
    groups = [study.seeds[i : i + pairs] for i in range(0, len(study.seeds), pairs)]
    for seeds in groups:
        if all(seed in baseline and seed in again for seed in seeds):
            contrasts.append(infer(study, [baseline[s] for s in seeds], [again[s] for s in seeds]))
    if not contrasts:
        raise ParibusError(f"no replicate of {results.path} is complete; run `paribus null` again")

    def rate(name: str, nominal: float, happened: list[bool]) -> Rate:
        n, count = len(happened), sum(happened)
        return Rate(name, nominal, count, n, clopper_pearson(count, n))

    return Calibration(
        metric=metric,
        pairs=pairs,
        rates=(
            rate(
                "false positives, as registered",
                alpha,
                [c.decided.p_value <= alpha for c in contrasts],
            ),
            rate("false positives, paired t", alpha, [c.t_p <= alpha for c in contrasts]),
            rate(
                "false positives, bootstrap", alpha, [c.studentized_p <= alpha for c in contrasts]
            ),
            rate("coverage, t interval", 1 - alpha, [0.0 in c.t_interval for c in contrasts]),
            rate(
                "coverage, studentized interval",
                1 - alpha,
                [0.0 in c.studentized_interval for c in contrasts],
            ),
        ),
        skipped=len(groups) - len(contrasts),
        p_values=tuple(c.decided.p_value for c in contrasts),
    )
