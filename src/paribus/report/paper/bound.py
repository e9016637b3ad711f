"""What a paper's braces can say: values, tables and figures of its studies, by name.

Every function reads the records, rounds as tables do (`paribus.numbers`), and keeps what it gave:
the paper's lock file is made of that. A name that does not exist is a ParibusError.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paribus import numbers
from paribus.analysis import Contrast, Interacting, SharedContrast
from paribus.digests import digest, flatten
from paribus.errors import ParibusError, nearest
from paribus.metric import Metric
from paribus.report.figures import Figure
from paribus.report.paper.contents import (
    Material,
    changes_figure,
    changes_table,
    designs,
)
from paribus.report.paper.typesetting import PAGE_PIXELS, column_widths, minus
from paribus.report.tables import Table
from paribus.report.words import margin_in_words
from paribus.results import load_results
from paribus.untrusted_io import read_json

NARROW = 0.62  # of the text's width, for a figure that does not want all of it
CHANGES, DESIGNS = "changes", "designs"
MOST_DIGITS = 12
DIGITS = 3  # of a change that no metric declares digits for
MOST_MISSING = 3  # trials that an error names
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|$@^~!])")


class Words(str):
    """Words from the records: Markdown in them is escaped when they are printed."""


class Markdown(str):
    """Markdown made here, with what it shows: whether that changed is asked, not how it is set."""

    shows: Any = None

    @classmethod
    def of(cls, text: str, shows: Any) -> Markdown:
        """Return `text` with what it shows."""
        made = cls(text)
        made.shows = shows
        return made


def _bound(function: Callable[..., str]) -> Callable[..., str]:
    """Keep what the function gives, by its name and arguments. Other arguments than it takes are
    a ParibusError."""
    takes = inspect.signature(function)

    @functools.wraps(function)
    def keeping(self: Bound, *args: Any, **kw: Any) -> str:
        try:
            takes.bind(self, *args, **kw)
        except TypeError as error:
            names = ", ".join(name for name in takes.parameters if name != "self")
            raise ParibusError(f"{function.__name__} takes {names}: {error}") from None
        _require_size(function.__name__, **kw)
        said = function(self, *args, **kw)
        told = [*map(_argument, args), *(f"{key}={_argument(value)}" for key, value in kw.items())]
        kept = digest(said.shows)[:16] if isinstance(said, Markdown) else str(said)
        self.values[f"{function.__name__}({', '.join(told)})"] = kept
        return said if isinstance(said, Markdown) else Words(said)

    keeping.is_bound = True  # type: ignore[attr-defined]
    return keeping


def _require_size(name: str, digits: Any = None, width: Any = None, **_: Any) -> None:
    """Raise ParibusError for a number of digits, or a width, that is none."""
    if digits is not None and (type(digits) is not int or not 0 <= digits <= MOST_DIGITS):
        raise ParibusError(
            f"{name}: digits = {digits!r} must be a whole number from 0 to {MOST_DIGITS}"
        )
    if width is not None and (type(width) not in (int, float) or not 0 < width <= 1):
        raise ParibusError(
            f"{name}: width = {width!r} must be a share of the text's width, above 0 and at most 1"
        )


def _argument(value: Any) -> str:
    return f"[{', '.join(map(_argument, value))}]" if isinstance(value, list) else str(value)


@dataclass(eq=False)
class Bound:
    """The studies of a paper; each is read when something first asks for it.

    Attributes:
        paths: of results folders or archives, by the names that the paper has for them.
        files: of numbers that the author's own scripts wrote, likewise.
        digits: the most decimal places that a change has in text and in tables of changes.
        values: what was given so far, by the call; of tables and figures a digest.
        drawn: figures that were asked for, with their width in pixels, by the names of their files.
    """

    paths: Mapping[str, Path]
    files: Mapping[str, Path] = field(default_factory=dict)
    digits: int = MOST_DIGITS
    values: dict[str, str] = field(default_factory=dict)
    drawn: dict[str, tuple[Figure, int]] = field(default_factory=dict)
    labels: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    _read: dict[str, Material] = field(default_factory=dict)

    def begin(self) -> None:
        """Forget which figures and labels an earlier text had."""
        self.drawn.clear()
        self.labels.clear()
        self.asked.clear()

    def functions(self) -> dict[str, Callable[..., str]]:
        """Return all that stands in braces, by name."""
        names = [name for name, one in vars(Bound).items() if hasattr(one, "is_bound")]
        return {name: getattr(self, name) for name in names}

    def material(self, study: str) -> Material:
        """Read, analyse and judge a study of the paper; it must be finished."""
        if study not in self._read:
            path = self._path(study)
            results = load_results(path)
            left = [f"{trial.arm}/seed-{trial.seed}" for trial in results.unfinished]
            if left or not results.finished:
                more = " and others" if len(left) > MOST_MISSING else ""
                raise ParibusError(
                    f"{path}: {len(results.finished)} of {results.n_trials} trials are finished; "
                    f"missing: {', '.join(left[:MOST_MISSING])}{more}; finish it with `paribus run`"
                )
            self._read[study] = Material.of(results)
        return self._read[study]

    def _path(self, study: str) -> Path:
        return self.paths[_known(study, self.paths, "the paper names no study")]

    @_bound
    def change(
        self,
        study: str,
        arm: str,
        metric: str | None = None,
        *,
        against: str | None = None,
        digits: int | None = None,
        interval: bool = True,
        as_given: bool = False,
    ) -> str:
        """Return `-0.004 [-0.014, +0.007]`: the arm minus its reference, at the same seed.

        Or minus `against`, another arm: a contrast that was not registered, with the same errors.
        With `as_given`, without the error of having chosen the tuned values.
        """
        contrast = self._contrast(study, arm, metric, against, as_given=as_given)
        return self._change(f"{study}: {arm}", contrast, digits, interval=interval)

    def _change(
        self, of: str, found: Contrast | Interacting, digits: int | None, *, interval: bool
    ) -> str:
        says, places = found.decided, self._digits(found.declared, digits)
        if says is None:
            raise ParibusError(f"{of} has no change: {found.why_not}")
        if not interval:
            return numbers.signed(found.declared.shown(says.mean), places)
        return found.declared.delta_text(says.mean, says.interval.low, says.interval.high, places)

    @_bound
    def p(
        self,
        study: str,
        arm: str,
        metric: str | None = None,
        *,
        against: str | None = None,
        adjusted: bool = True,
        as_given: bool = False,
    ) -> str:
        """Return `p = 0.013`: by Holm's method in its family, or not `adjusted`.

        One `against` another arm than the reference, or `as_given`, is a family by itself.
        """
        contrast = self._contrast(study, arm, metric, against, as_given=as_given)
        p = contrast.tested_p if adjusted else contrast.p
        return "not tested" if p is None else f"p {numbers.p_equals(p)}"

    @_bound
    def interaction(
        self,
        study: str,
        name: str,
        metric: str | None = None,
        *,
        digits: int | None = None,
        interval: bool = True,
    ) -> str:
        """Return `-0.156 [-0.170, -0.142]`: the mean effect of some arms minus that of others."""
        one = self._interaction(study, name, metric)
        return self._change(f"{study}: the interaction {name}", one, digits, interval=interval)

    @_bound
    def interaction_p(self, study: str, name: str, metric: str | None = None) -> str:
        """Return `p = 0.013`, by Holm's method over the interactions of the study."""
        p = self._interaction(study, name, metric).holm_p
        return "not tested" if p is None else f"p {numbers.p_equals(p)}"

    def _interaction(self, study: str, name: str, metric: str | None) -> Interacting:
        declared = self._metric(study, metric)
        there = {
            one.name: one
            for one in self.material(study).analysis.interactions
            if one.metric == declared.name
        }
        return there[_known(name, there, f"{study}: no interaction on {declared.name}")]

    @_bound
    def outcome(self, study: str, arm: str, metric: str | None = None) -> str:
        """Return the verdict's word."""
        return self._verdict(study, arm, metric).outcome

    @_bound
    def value(
        self,
        study: str,
        arm: str,
        metric: str | None = None,
        *,
        seed: int | None = None,
        digits: int | None = None,
        sd: bool = False,
    ) -> str:
        """Return `1.8730`, the mean over seeds or of one `seed`; with `sd`, `1.8730 (0.0174)`."""
        one = self.material(study)
        declared = self._metric(study, metric)
        summary = one.analysis.summary(self._arm(study, arm), declared.name)
        if seed is not None:
            by_seed = {str(of): value for of, value in summary.values.items()}
            where = f"{study}: {arm} has no {declared.label} at seed"
            return declared.mean_text(by_seed[_known(str(seed), by_seed, where)], None, digits)
        return declared.mean_text(summary.mean, summary.sd if sd else None, digits)

    @_bound
    def best_tried(
        self,
        study: str,
        arm: str,
        *,
        against: str | None = None,
        digits: int | None = None,
        ends: bool = False,
    ) -> str:
        """Return the score of the best value that tuning tried, the mean over tuning seeds; or by
        how much it differs from that of another arm. With `ends`, `-0.056 (-0.094 to -0.019)`:
        from the least seed to the largest."""
        tuned = self.material(study).analysis.tuned
        if tuned is None:
            raise ParibusError(f"{study}: nothing was tuned")
        best, metric = tuned.best(self._arm(study, arm)), tuned.metric
        mean, by_seed = best.mean, list(best.values.values())
        if against is not None:
            other = tuned.best(self._arm(study, against))
            mean -= other.mean
            by_seed = [value - other.values[seed] for seed, value in best.values.items()]

        def text(value: float) -> str:
            if against is None:
                return metric.mean_text(value, None, digits)
            return numbers.signed(metric.shown(value), self._digits(metric, digits))

        finite = [value for value in by_seed if math.isfinite(value)]
        if not ends or not finite:
            return text(mean)
        return f"{text(mean)} ({text(min(finite))} to {text(max(finite))})"

    @_bound
    def at_one_value(self, study: str, arm: str, *, digits: int | None = None) -> str:
        """Return `-0.110 at 0.0046 to +0.076 at 0.00046`: between what the change of an arm lies
        where it and its reference have one of the values that were tried, over tuning seeds."""
        tuned = self.material(study).analysis.tuned
        extremes = None if tuned is None else tuned.extremes(self._arm(study, arm))
        if tuned is None or extremes is None:
            raise ParibusError(f"{study}: {arm} and its reference share no value that was tuned")

        def text(one: SharedContrast) -> str:
            places = self._digits(tuned.metric, digits)
            values = tuned.values_of(one).values()
            told = (numbers.compact(v) if isinstance(v, float) else str(v) for v in values)
            return f"{numbers.signed(tuned.metric.shown(one.mean), places)} at {', '.join(told)}"

        return " to ".join(map(text, extremes))

    @_bound
    def margin(self, study: str, metric: str | None = None) -> str:
        """Return `±0.02`, the registered margin of a primary endpoint."""
        one, name = self.material(study), self._metric(study, metric).name
        for contrast in one.analysis.contrasts:
            if contrast.metric == name and contrast.margin is not None:
                return margin_in_words(one.study, contrast)
        raise ParibusError(f"{study}: {name} has no margin")

    @_bound
    def seeds(self, study: str, arm: str | None = None, metric: str | None = None) -> str:
        """Return how many seeds a study has, or how many pairs the contrast of an arm."""
        if arm is None:
            return str(len(self.material(study).study.seeds))
        contrast = self._contrast(study, arm, metric)
        return str(contrast.decided.n if contrast.decided else len(contrast.seeds))

    @_bound
    def events(self, study: str, arm: str) -> str:
        """Return `3 of 16`: trials of an arm that diverged or had a spike."""
        arm, analysis = self._arm(study, arm), self.material(study).analysis
        found = [one for (of, _), one in analysis.events.items() if of == arm]
        return f"{sum(one.diverged or one.spiked for one in found)} of {len(found)}"

    @_bound
    def parameters(self, study: str, arm: str | None = None) -> str:
        """Return how many parameters an arm has, by default the baseline."""
        one = self.material(study)
        return f"{one.parameters[self._arm(study, arm or one.study.baseline)]:,}"

    @_bound
    def setting(
        self,
        study: str,
        key: str,
        arm: str | None = None,
        *,
        digits: int | None = None,
        per: float = 1.0,
    ) -> str:
        """Return a key of an arm's setting, such as training.iterations, as it was run; of a
        fraction, so many significant digits, in units of `per`."""
        one = self.material(study)
        arm = self._arm(study, arm or one.study.baseline)
        flat = flatten(one.study.setting(arm).model_dump(mode="json"))
        value = flat[_known(key, flat, f"{study}: no setting")]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return str(value)
        if isinstance(value, int):
            return f"{value:,}"
        value = value / per
        return numbers.compact(float(f"{value:.{digits}g}") if digits else value)

    @_bound
    def number(
        self, file: str, name: str, *, digits: int | None = None, interval: bool = True
    ) -> str:
        """Return a number of a file of the author's own, JSON of names with what they are: a
        number, words, or three numbers, a change and the ends of its interval."""
        path = self.files[_known(file, self.files, "the paper names no file of numbers")]
        there = read_json(path)
        if not isinstance(there, dict):
            raise ParibusError(f"{path} is no JSON object of names and numbers")
        found = there[_known(name, there, f"{path}: no number")]
        match found:
            case str():
                return found
            case int() if not isinstance(found, bool):
                return f"{found:,}"
            case float() if digits is not None:
                return numbers.fixed(found, digits)
            case float():
                return numbers.compact(found)
            case [int() | float() as mean, int() | float() as low, int() | float() as high]:
                places = min(self.digits, DIGITS) if digits is None else digits
                told = numbers.delta(mean, low, high, places)
                return told if interval else numbers.signed(mean, places)
        raise ParibusError(f"{path}: {name} is neither a number, words nor three numbers: {found}")

    @_bound
    def root(self, study: str) -> str:
        """Return the root digest of what was read."""
        return self.material(study).results.root

    @_bound
    def error_rate(self, study: str, name: str) -> str:
        """Return how often a study of `paribus run --null` claimed something, such as `2.5%`."""
        rates = {str(one["name"]): one for one in self._errors(study)}
        return _share(rates[_known(name, rates, f"{study}: no error rate")]["rate"])

    @_bound
    def table(
        self,
        study: str | list[str],
        name: str,
        metric: str | None = None,
        *,
        caption: str | None = None,
        columns: list[str] | None = None,
        arms: list[str] | None = None,
        label: str | None = None,
    ) -> str:
        """Return a table by name, of a study; `changes` and `designs` are of one or several."""
        first, *others = several = study if isinstance(study, list) else [study]
        if name == CHANGES:
            found = changes_table(self._compared(several, metric), self._digits)
        elif name == DESIGNS:
            found = designs({one: self.material(one) for one in several})
        elif others:
            raise ParibusError(f"the table {name} is of one study, not of {len(several)}")
        else:
            there = self.material(first).tables
            found = there[_known(name, [*there, CHANGES, DESIGNS], f"{first}: no table")]
        if arms is not None:
            called = {
                self.material(of).called[self._arm(of, arm)] for of in several for arm in arms
            }
            place = _place("arm", found)
            rows = tuple(row for row in found.rows if row[place] in called)
            found = replace(found, rows=rows)
        if columns is not None:
            places = [_place(column, found) for column in columns]
            head, *rows = (tuple(row[i] for i in places) for row in (found.head, *found.rows))
            found = replace(found, head=head, rows=tuple(rows))
        return self._table(found, caption, label)

    @_bound
    def figure(
        self,
        study: str | list[str],
        name: str,
        metric: str | None = None,
        *,
        caption: str | None = None,
        width: float | None = None,
        label: str | None = None,
    ) -> str:
        """Return a figure by name, of a study; `changes` is of one or several.

        `width` is a share of the text's.
        """
        first, *others = several = study if isinstance(study, list) else [study]
        if name == CHANGES:
            found = changes_figure(self._compared(several, metric))
        elif others:
            raise ParibusError(f"the figure {name} is of one study, not of {len(several)}")
        else:
            there = self.material(first).figures
            found = there[_known(name, [*there, CHANGES], f"{first}: no figure")]
        share = width or (1.0 if found.wide else NARROW)
        file = re.sub("[^A-Za-z0-9_-]+", "-", f"{first}-{name}-{digest([found.rows, share])[:8]}")
        self.drawn[file] = (found, round(share * PAGE_PIXELS))
        said = escaped(found.caption) if caption is None else caption
        about = f"{{#{self._label(label or f'fig-{name}')} width={round(100 * share)}%}}"
        # A blank line on either side makes it a figure.
        return Markdown.of(f"\n\n![{said}](figures/{file}.svg){about}\n\n", found.rows)

    def ref(self, label: str) -> str:
        """Return a reference to a table or figure of the paper, such as `Table 2`."""
        self.asked.add(label)
        return Markdown(f"`@{label}`{{=typst}}")

    ref.is_bound = True  # type: ignore[attr-defined]

    def _table(self, table: Table, caption: str | None = None, label: str | None = None) -> str:
        """Return a pipe table: as wide as the text, columns in proportion to the dashes."""
        said = escaped(table.caption) if caption is None else caption
        dashes = [
            f":{'-' * width}" if name in table.text else f"{'-' * width}:"
            for name, width in zip(table.head, column_widths(table), strict=True)
        ]
        lines = [table.head, dashes, *table.rows]
        text = "\n".join(
            f"| {' | '.join(row if row is dashes else map(escaped, row))} |" for row in lines
        )
        name = f" {{#{self._label(label or f'tbl-{table.name}')}}}"
        shows = [table.head, table.rows]
        return Markdown.of(f"\n\n{text}\n\n" + (f": {said}{name}\n\n" if said else ""), shows)

    def _label(self, wanted: str) -> str:
        """Return `wanted`, with a number where the paper has it already."""
        plain = re.sub(r"[^A-Za-z0-9-]+", "-", wanted)
        tried = (plain if n == 1 else f"{plain}-{n}" for n in range(1, len(self.labels) + 2))
        label = next(label for label in tried if label not in self.labels)
        self.labels.add(label)
        return label

    def _digits(self, metric: Metric, digits: int | None = None) -> int:
        """Return how many decimal places a change has, as it is shown."""
        return min(metric.shown_change_digits, self.digits) if digits is None else digits

    def _arm(self, study: str, arm: str) -> str:
        """Return an arm by its name or its title."""
        called = self.material(study).called
        by_title = {title: name for name, title in called.items()}
        return by_title.get(arm) or _known(arm, called, f"{study}: no arm")

    def _metric(self, study: str, metric: str | None) -> Metric:
        """Return a metric by its name or label, with spaces or underscores; or the primary one."""
        one = self.material(study)
        metrics = one.analysis.metrics
        if metric is None:
            return metrics[one.study.primary.metric]
        # By its label first: once a sealed test part is opened, validation_loss is `test loss`.
        known = metrics | {one.label.replace(" ", "_"): one for one in metrics.values()}
        return known[_known(metric.replace(" ", "_"), known, f"{study}: no metric")]

    def _compared(self, studies: Sequence[str], metric: str | None) -> list[Any]:
        """Return every contrast of these studies on a metric, as tables across studies take it."""
        return [
            (study, self.material(study), self._contrast(study, arm, metric))
            for study in studies
            for arm, _ in self.material(study).study.contrasts
        ]

    def _contrast(
        self,
        study: str,
        arm: str,
        metric: str | None,
        against: str | None = None,
        *,
        as_given: bool = False,
    ) -> Contrast:
        one, arm, name = (
            self.material(study),
            self._arm(study, arm),
            self._metric(study, metric).name,
        )
        other = one.study.reference(arm) if against is None else self._arm(study, against)
        if other is None:
            raise ParibusError(f"{study}: {arm} is compared with no other arm")
        if other == arm:
            raise ParibusError(f"{study}: {arm} is compared with itself; name another arm")
        if against is not None or as_given:
            return one.compare(arm, other, name, as_given=as_given)
        found = [c for c in one.analysis.contrasts if (c.arm, c.metric) == (arm, name)]
        if not found:
            raise ParibusError(f"{study}: {name} is no endpoint; value() has its mean")
        return found[0]

    def _verdict(self, study: str, arm: str, metric: str | None) -> Any:
        contrast = self._contrast(study, arm, metric)
        for verdict in self.material(study).verdicts:
            if (verdict.arm, verdict.metric) == (contrast.arm, contrast.metric):
                return verdict
        raise ParibusError(f"{study}: {contrast.metric} is no primary endpoint and has no verdict")

    def _errors(self, study: str) -> list[dict[str, Any]]:
        """Read the rates that `paribus run --null` counted from null.json."""
        path = self._path(study) / "null.json"
        rates = read_json(path).get("rates")
        keys = {"name", "nominal", "rate", "interval"}
        if not isinstance(rates, list) or not all(
            isinstance(r, dict) and keys <= r.keys() for r in rates
        ):
            raise ParibusError(f"{path} is not what `paribus run --null` writes; run it again")
        return rates


def printed(said: Any) -> str:
    """Return what stands in the Markdown for what braces gave."""
    return escaped(said) if isinstance(said, Words) else str(said)


def escaped(text: str) -> str:
    """Escape what Markdown reads as markup: words of a study never are."""
    return SPECIAL.sub(r"\\\1", minus(" ".join(text.split())))


def _known(name: str, known: Any, what: str) -> str:
    if name not in known:
        raise ParibusError(f"{what} '{name}': {nearest(str(name), known)}")
    return name


def _place(column: str, table: Table) -> int:
    """Return where a column is."""
    return table.head.index(_known(column, table.head, f"{table.name}: no column"))


def _share(value: Any) -> str:
    return f"{100 * float(value):.1f}%" if math.isfinite(float(value)) else numbers.NONE
