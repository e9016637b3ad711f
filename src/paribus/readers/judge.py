"""Judge finished runs: a table or files become a study, and go the way of every other study."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from paribus.analysis import analyse
from paribus.decision import Verdicts, Word, decide
from paribus.errors import ParibusError, nearest
from paribus.files import fleeting
from paribus.ledger import unrecorded
from paribus.metric import readable
from paribus.numbers import fixed, p_value, plural, some
from paribus.readers.port import Columns, Run, cell_text
from paribus.readers.read import Reading
from paribus.readers.runs import judge_runs, spent_by
from paribus.readers.select import (
    ROWS,
    Selection,
    group_by_arm,
    read_runs,
    score_of,
    seed_of,
    select_runs,
    table_columns,
)
from paribus.readers.tables import runs_of
from paribus.results import Results
from paribus.statistics import DESCRIPTIVE_BELOW, paired_t
from paribus.statistics.t_test import mean_and_sd
from paribus.study import Study, load_study
from paribus.study.runs import BUDGETS, TO_TARGET, RunsSection, section_from

LOG = logging.getLogger("paribus")
BASELINES = ("baseline", "base", "control", "plain", "vanilla", "default")
# Words that turn what another word of a name says, or make another quantity of it; ask then.
TURNED = re.compile(
    r"(?<![a-z])(?:neg(?:ative|ated)?|inv(?:erse)?|improve(?:d|ment)?|gain|change|delta|diff|err"
    r"|stderr|std|se|to|time|gap|reduc(?:ed|tion)|saved|free|var|variance|resistance|degradation"
    r"|violation|spread|range)(?![a-z])"
)
_PART = r"(?<![a-z])(?:val|valid|validation|train|training|eval|test|dev)?"
LOWER = re.compile(
    _PART + r"(?:loss(?:es)?|bpb|bpc|perplexity|ppl|errors?|nll|wer|cross_?entropy|drop|regret"
    r"|forgetting)(?![a-z])"
)
HIGHER = re.compile(
    _PART + r"(?:acc|accuracy|accuracies|f1|bleu|rouge|rewards?|exact_match|pass@|core)(?![a-z])"
)
SIGNIFICANT = 2  # digits of the spread within arms that are shown
MORE_DIGITS = 2  # of a mean, than its spread has
MOST_NAMED = 8
Better = Literal["lower", "higher"]


def judge(data: Any, **options: Any) -> Verdicts:
    """Return the verdicts on finished runs, as `paribus judge` gives them.

    Args:
        data: a table of pandas, polars or Arrow, or a dict of columns; or paths of files.
        options: those of `make_study`.

    Raises ParibusError in one line on bad input.

    Example:
        >>> table = {"arm": ["base", "base", "new", "new"], "loss": [3.1, 3.2, 3.0, 3.1]}
        >>> judge(table, score="loss", baseline="base")[0].word
        'DESCRIPTIVE'
    """
    study, reading, _ = make_study(data, **options)
    with judged(study, reading) as results:
        return decide(analyse(results))


@contextmanager
def judged(study: Study, reading: Reading, home: Path | None = None) -> Iterator[Results]:
    """Judge finished runs and yield the results, stored in `home` or in a temporary folder.
    Nothing is written to the ledger."""
    with unrecorded(), fleeting() as folder:
        yield judge_runs(study, home or folder / "runs", reading=reading, is_kept=home is not None)


def make_study(
    data: Any,
    *,
    score: str | Sequence[str] = (),
    margin: float | None = None,
    baseline: str | float | None = None,
    better: Better | Sequence[Better] | None = None,
    pair: bool | str | None = None,
    resolution: float | None = None,
    alpha: float = 0.05,
    new_items: bool = False,
    name: str = "judged",
    **options: Any,
) -> tuple[Study, Reading, Selection]:
    """Return the study of finished runs, with an arm for each name that they have; the runs; and
    those that count.

    Args:
        data: a table of pandas, polars or Arrow, or a dict of columns; or paths of files.
        score: the column or score that decides; of several the first does. A recognised log has
            one by default.
        margin: the largest change that would not matter, in the score's unit; without one nothing
            is shown to be the same.
        baseline: the arm that others are compared with; by default the arm of that name.
        better: "lower" or "higher" of the first score, or a list of one for each; by default what
            the name of the score says.
        pair: whether runs of one seed share data and initial values: an assumption, which the
            card states; or the column by whose values runs are paired instead.
        resolution: the smallest difference that the first score can show.
        alpha: the chance of a false claim, over all arms.
        new_items: whether the claim is about new items as well, such as documents or questions.
        name: of the study.
        options: `reader`, and the keys of `[runs]`: the columns `arm`, `seed`, `step`, `item`,
            `metric` and `value` (the arm of files may be "folder" or "name" too), `at_step`,
            `target`, `crashed`, `stopped_early`, `where`, `best_of`.

    Raises ParibusError.
    """
    scores = [score] if isinstance(score, str) else list(score)
    reading, section, by_label = read_data(data, scores, pair=pair, **options)
    scores = scores or [default_score(reading.runs)]
    _require_arms(by_label, reading.runs, section.arm)
    baseline = _find_baseline(None if baseline is None else cell_text(baseline), by_label)
    first, directions = scores[0], _directions(scores, better)
    known = sorted({name for run in reading.runs for name in run.scores})
    if lacking := [score for score in scores if score not in known]:
        raise ParibusError(f"no run has a score '{lacking[0]}': {nearest(lacking[0], known)}")
    selection = select_runs(by_label, section, scores, lower=directions[0] == "lower")
    if empty := [label for label, runs in selection.runs.items() if not runs]:
        if selection.excluded.get(empty[0]):
            raise ParibusError(f"arm '{empty[0]}' has no run that did not crash", code="too_few")
        raise ParibusError(
            f"no run of arm '{empty[0]}' has a {first}: an empty cell is a missing score; write "
            "NaN for a run that diverged, or remove the arm",
            code="too_few",
        )
    by_label = selection.runs
    runs = [run for own in by_label.values() for run in own]
    seeds, without = _find_seeds(by_label, section, pair=bool(pair))
    specs: dict[str, dict[str, Any]] = {}
    for score, direction_of_it in zip(scores, directions, strict=True):
        values = [
            [score_of(run, score, section.at_step) for run in own if score in (first, *run.scores)]
            for own in by_label.values()
        ]
        specs[score] = {"better": direction_of_it, "digits": digits_of(values)}
    if resolution is not None:
        specs[first]["resolution"] = float(resolution)
    if _have_same_items(runs, first):
        specs[first]["by_item"] = True
    elif new_items:
        raise ParibusError(
            f"a claim about new items takes '{first}' of every run as the mean of the same items; "
            "name their column with --item, or leave --new-items out"
        )
    endpoints: list[dict[str, Any]] = [{"metric": first, "primary": True}]
    if margin is not None:
        endpoints[0]["margin"] = margin
    endpoints += [{"metric": score} for score in scores[1:]]
    if section.target is not None:
        budgets = [f"{budget}{TO_TARGET}" for budget in BUDGETS]
        budgets = [name for name in budgets if all(len(spent_by(r, first, name)) for r in runs)]
        if not budgets:
            raise ParibusError(
                f"no run has a curve of '{first}', so that none is known to come to the target; "
                "leave --target out, or name the column of steps with --step"
            )
        endpoints += [{"metric": budget} for budget in budgets]
    called, arms = _name_arms(by_label), {}
    for label in sorted(by_label, key=lambda label: label != baseline):
        settings: dict[str, Any] = {"runs.label": label}
        if without[label]:
            settings["runs.without"] = without[label]
        title = {} if called[label] == label else {"title": label}
        arms[called[label]] = {"set": settings} | title
    treatments = [called[label] for label in by_label if label != baseline]
    study = load_study(
        {
            "name": label_as_name(name),
            "trainer": "runs",
            "question": f"{readable(first)} of {some(treatments)} against {called[baseline]}",
            "baseline": called[baseline],
            "arms": arms,
            "seeds": seeds,
            "endpoints": endpoints,
            "inference": {
                "test": "paired_t" if pair else "welch_t",
                "alpha": alpha,
                "target": "new items" if new_items else "this item set",
            },
            "runs": section.model_dump(mode="json", exclude_defaults=True) | {"scores": specs},
        }
    )
    return study, reading, selection


def read_data(
    data: Any,
    scores: Sequence[str],
    *,
    arm: str | None = None,
    seed: str | None = None,
    pair: bool | str | None = None,
    reader: Any = None,
    **section: Any,
) -> tuple[Reading, RunsSection, dict[str, list[Run]]]:
    """Return the runs of a table or of files, what is stated of them, and the runs by arm label;
    see `make_study`. Raises ParibusError where there is none."""
    if isinstance(pair, str) and pair != "seed":
        if seed not in (None, pair):
            raise ParibusError(
                f"pairs share '{pair}', and the seed is '{seed}'; keep one of the two",
                code="conflict",
            )
        seed = pair
    rows = {key: section.get(key, "") for key in ROWS}
    columns = table_columns(scores, arm, seed, pair=bool(pair), **rows)
    listed = data if isinstance(data, list | tuple) else [data]
    if all(isinstance(path, str | os.PathLike) for path in listed):
        reading, arm = read_runs(listed, reader, columns, arm=arm)
    else:
        reading = Reading(runs=_table_runs(data, columns))
    if not reading.runs:
        reasons = [why for _, why in reading.refused]
        reasons += [f"{path}: {why}" for path, why in reading.skipped]
        none = f"no run was found in {plural(reading.files, 'file')}"
        raise ParibusError("; ".join([none, *reasons[:1]]), code="missing")
    stated = section_from({"arm": arm or "arm", "seed": seed or "seed", **section})
    return reading, stated, group_by_arm(reading.runs, stated)


def _table_runs(data: Any, columns: Columns) -> list[Run]:
    """Return the runs of a table of pandas, polars or Arrow, or of a dict of columns.

    Raises ParibusError where it is not a table.
    """
    import pyarrow as pa

    try:
        if isinstance(data, Mapping):
            table = pa.table({str(name): list(values) for name, values in data.items()})
        elif hasattr(data, "iloc"):  # of pandas, whose NaN Arrow would read as an empty cell
            table = pa.table({str(n): pa.array(data[n], from_pandas=False) for n in data.columns})
        elif hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
            table = pa.table(data)
        else:
            raise ParibusError(
                "expected a table of pandas, polars or Arrow, a dict of columns, or paths; got "
                f"{type(data).__name__}"
            )
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ParibusError(
            f"the data cannot be converted to an Arrow table: {str(error).splitlines()[0]}"
        ) from None
    runs = runs_of(table, columns, "the table")
    for run in runs:
        run.finish()
    return runs


def default_score(runs: Sequence[Run]) -> str:
    """Return the score that the form of the logs decides by, or the only one that there is."""
    known = sorted({name for run in runs for name in run.scores})
    defaults = {run.decides for run in runs if run.decides in run.scores}
    if len(defaults) == 1:
        return defaults.pop()
    if len(known) == 1:
        return known[0]
    if not known:
        raise ParibusError("no run has a score; name the column of the score, such as --score loss")
    raise ParibusError(
        f"no score is named; say which decides, such as --score {known[0]}: "
        f"{some(known, MOST_NAMED)}",
        code="ambiguous",
    )


def _find_baseline(baseline: str | None, by_label: Mapping[str, Sequence[Run]]) -> str:
    """Return the label of the baseline. Raises ParibusError."""
    if baseline is None:
        baseline = next((name for name in BASELINES if name in by_label), "")
    elif baseline not in by_label:  # as the arm is called here
        baseline = {label_as_name(label): label for label in by_label}.get(baseline, baseline)
    if baseline in by_label:
        return baseline
    arms = ", ".join(f"{label} ({len(runs)})" for label, runs in list(by_label.items())[:8])
    if baseline:
        raise ParibusError(
            f"baseline '{baseline}' is not an arm; {nearest(baseline, by_label)}; arms and their "
            f"runs: {arms}",
            code="unknown",
        )
    raise ParibusError(
        f"no baseline is named; say --baseline {next(iter(by_label))}, or another of the arms with "
        f"their runs: {arms}",
        code="ambiguous",
    )


def _require_arms(by_label: Mapping[str, list[Run]], runs: Sequence[Run], arm: str) -> None:
    """Raise ParibusError where runs are not told apart as arms."""
    if nameless := by_label.get(""):
        known = sorted({name for run in runs for name in run.facts} - {arm})
        subject = "any run" if len(nameless) == len(runs) else nameless[0].name
        raise ParibusError(
            f"nothing called '{arm}' names the arm of {subject}"
            + (f": {nearest(arm, known)}" if known else "")
            + "; say what does with --arm COLUMN, --arm-from folder, or give files as label=PATTERN"
        )
    if len(by_label) == 1:
        label = next(iter(by_label))
        raise ParibusError(
            f"all {len(runs)} runs belong to one arm, '{label}', so there is nothing to compare; "
            "say what distinguishes the arms with --arm, --arm-from or label=PATTERN, or compare "
            "this arm with a number by --bar"
        )


def _name_arms(labels: Iterable[str]) -> dict[str, str]:
    """Return the name of each arm by its label. Raises ParibusError where two are alike."""
    called = {label: label_as_name(label) for label in labels}
    for label, own in called.items():
        if own != label:
            LOG.warning("arm '%s' is called '%s' here, as a folder can be called", label, own)
    if len(set(called.values())) < len(called):
        raise ParibusError(f"arms {list(called)} are called alike; give each a name of its own")
    return called


def label_as_name(label: str) -> str:
    """Return a label as the name of a folder can be: at most 80 characters, no separators."""
    return re.sub(r"[/\\]", "-", label).lstrip(".")[:80] or "unnamed"


def _find_seeds(
    by_label: Mapping[str, list[Run]], section: RunsSection, *, pair: bool
) -> tuple[list[int], dict[str, list[int]]]:
    """Return the seeds of the study, and by arm those that it has no run of.

    Runs that are no pairs are numbered where their seeds do not tell them apart.
    """
    named = {label: [seed_of(run, section) for run in runs] for label, runs in by_label.items()}
    words = sorted({seed for own in named.values() for seed in own}, key=lambda w: (len(w), w))
    are_numbers = all(w.isdecimal() and str(int(w)) == w and int(w) < 2**63 for w in words)
    if not pair and not (are_numbers and all(len({*own}) == len(own) for own in named.values())):
        largest = max(map(len, named.values()))
        return list(range(1, largest + 1)), {
            label: list(range(len(own) + 1, largest + 1)) for label, own in named.items()
        }
    for label, own in named.items():
        if "" in own:
            raise ParibusError(
                f"nothing called '{section.seed}' is the seed of a run of arm '{label}', and pairs "
                "need one; name the column with --seed, or leave --pair out"
            )
    if not are_numbers and section.seed != "seed":  # of what pairs share, such as a text's name
        numbers = {word: float(number) for number, word in enumerate(words, start=1)}
        for run in (run for runs in by_label.values() for run in runs):
            run.facts["pair"] = seed_of(run, section)
            run.facts[section.seed] = run.facts["seed"] = numbers[str(run.facts["pair"])]
        return _find_seeds(by_label, section, pair=pair)
    if not are_numbers:
        odd = next(word for word in words if not word.isdecimal() or int(word) >= 2**63)
        raise ParibusError(f"seed '{odd}' is not a whole number, by which runs can be paired")
    return [int(w) for w in words], {
        label: [int(w) for w in words if w not in own] for label, own in named.items()
    }


def _directions(scores: Sequence[str], better: Better | Sequence[Better] | None) -> list[Better]:
    """Return which direction of each score is better. Raises ParibusError."""
    stated: list[Any] = [better] if isinstance(better, str) else list(better or [])
    if len(stated) not in (0, 1, len(scores)):
        raise ParibusError(
            f"{len(stated)} directions are said, of {plural(len(scores), 'score')}; say --better "
            "once, of the first, or once for each"
        )
    stated += [None] * (len(scores) - len(stated))
    return [own or direction(score) for score, own in zip(scores, stated, strict=True)]


def direction(score: str) -> Better:
    """Return which direction of a score is better by its name. Raises ParibusError where that does
    not say it."""
    if score.endswith(TO_TARGET):
        return "lower"
    # Of accuracy_drop the drop is meant, and of lossless_acc the accuracy: the last word.
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", score).casefold()
    name = re.split(r"(?<![a-z])per(?![a-z])", name)[0]  # of loss_per_token the loss is meant
    low, high = (
        max((m.end() for m in words.finditer(name)), default=0) for words in (LOWER, HIGHER)
    )
    if low != high and not TURNED.search(name):
        return "lower" if low > high else "higher"
    raise ParibusError(
        f"whether less or more of '{score}' is better is not known; say --better lower or higher, "
        "of several scores once for each, in their order",
        code="ambiguous",
    )


def digits_of(arms: Iterable[Sequence[float]]) -> int:
    """Return the decimal places of a score that tell its runs apart: two digits of the spread
    within arms."""
    finite = [[value for value in values if math.isfinite(value)] for values in arms]
    with np.errstate(over="ignore"):
        sds = [float(np.std(values, ddof=1)) for values in finite if len(values) > 1]
    spread = float(np.median(sds)) if sds else 0.0
    if not 0 < spread < math.inf:
        return 4
    return min(max(SIGNIFICANT - 1 - math.floor(math.log10(spread)), 0), 9)


def _have_same_items(runs: Sequence[Run], score: str) -> bool:
    """Return whether every run has this score as the mean of the same items."""
    first = runs[0].items.get(score, {})
    return bool(first) and all(
        run.items.get(score, {}).keys() == first.keys()
        and math.isclose(
            math.fsum(run.items[score].values()) / len(first),
            run.scores.get(score, math.nan),
            rel_tol=1e-9,
            abs_tol=1e-12,
        )
        for run in runs
    )


@dataclass(frozen=True)
class AgainstBar:
    """A score of the runs of one arm against a bar.

    Attributes:
        n: finite runs; `diverged` are the others, and forbid BETTER.
        sd, low, high: SD of the runs, and the t interval of their mean; None below 2 runs.
        p: two-sided p of a one-sample t test against the bar; None below 5 runs.
        passed: how many runs are on the better side of the bar.
    """

    score: str
    bar: float
    better: Literal["lower", "higher"]
    n: int
    diverged: int
    mean: float
    sd: float | None
    low: float | None
    high: float | None
    p: float | None
    passed: int
    word: Word

    @property
    def lines(self) -> list[str]:
        """The card."""
        digits = 4
        if self.sd:
            digits = min(max(MORE_DIGITS - math.floor(math.log10(self.sd)), 0), 9)
        span = f"[{fixed(self.low, digits)}, {fixed(self.high, digits)}]" if self.n > 1 else ""
        p = "" if self.p is None else f", p {p_value(self.p)}"
        lost = f"; {self.diverged} diverged" if self.diverged else ""
        return [
            f"{self.score} against {self.bar:g}, {self.better} is better",
            f"  {self.word}  {fixed(self.mean, digits)} {span}  n {self.n}, SD "
            f"{fixed(self.sd, digits)}{p}",
            f"The mean with its 95% interval, and p of a t test against {self.bar:g}.",
            f"{self.passed} of {plural(self.n + self.diverged, 'run')} passed it{lost}.",
        ]


def compare_with_bar(
    runs: Sequence[Run],
    score: str,
    bar: float,
    better: Literal["lower", "higher"],
    *,
    at_step: float | None,
    alpha: float,
) -> AgainstBar:
    """Return the comparison of the runs of one arm with a bar, by Student's one-sample t.

    Raises ParibusError where no run has a finite score.
    """
    if not math.isfinite(bar):
        raise ParibusError(f"--bar {bar} must be finite")
    sign = 1 if better == "higher" else -1
    values = np.array([score_of(run, score, at_step) for run in runs])
    finite = values[np.isfinite(values)]
    if not len(finite):
        raise ParibusError(f"no run has a finite {score}")
    n, (mean, sd) = len(finite), mean_and_sd(finite)
    low = high = p = None
    if n > 1:
        test = paired_t(finite)
        interval = test.interval(1 - alpha)
        low, high = interval.low, interval.high
        p = test.p_value(bar) if n >= DESCRIPTIVE_BELOW and sd else None
    word: Word = "DESCRIPTIVE"
    if p is not None:
        is_better = sign * (mean - bar) > 0
        word = "UNRESOLVED" if p > alpha or (is_better and n < len(values)) else "BETTER"
        word = "WORSE" if word == "BETTER" and not is_better else word
    return AgainstBar(
        score=score,
        bar=bar,
        better=better,
        n=n,
        diverged=len(values) - n,
        mean=mean,
        sd=sd if n > 1 else None,
        low=low,
        high=high,
        p=p,
        passed=int((sign * (finite - bar) > 0).sum()),
        word=word,
    )
