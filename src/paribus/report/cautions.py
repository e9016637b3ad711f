"""Cautions: what a verdict depends on, as one table of code, severity, condition and template.

A condition returns the parameters of its template, once for each time that the caution applies. The
card shows the gravest caution of a study, the page and `--verbose` show all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paribus import numbers
from paribus.analysis import Analysis, Contrast, extension_in_words
from paribus.analysis.lack_of_fit import with_lack_of_fit
from paribus.decision import Verdict, word_of
from paribus.decision.evidence import gather, losses_elsewhere, quality_shown
from paribus.decision.verdict import is_of_text
from paribus.report.cells import TESTS, change_text, loss_text, size_text
from paribus.results import Control
from paribus.statistics import CROSSED, DESCRIPTIVE_BELOW, WELCH
from paribus.statistics.outliers import outlier, skewness

MOST_SEEDS = 5  # that a caution names
# Findings about finished runs that come after the others.
MINOR = ("file", "resumed")
SKEWED = 1.96  # standard errors; one in 20 samples of normal differences is beyond
# What a control that is not proven means.
NOT_PROVEN = {
    "held-out text": "Held-out text is not proven to be held out",
    "budget": "Budgets are not proven to be equal",
    "initial values": "Initial values are not proven to be drawn anew for every seed",
    "steps": "Scores are not shown to be of the same step",
    "software": "An arm and its reference were trained on different machines or software",
}
Parameters = Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class Caution:
    """A caution of one verdict: its code, its severity (3 is the gravest) and its sentence."""

    code: str
    severity: int
    text: str


@dataclass(frozen=True)
class Context:
    """A contrast with its verdict, as conditions look at it.

    Attributes:
        called: names of arms for readers.
        wider: the analysis with lack of fit in its errors; None if that adds nothing.
    """

    analysis: Analysis
    contrast: Contrast
    verdict: Verdict
    called: Mapping[str, str]
    wider: Analysis | None = None

    @property
    def alpha(self) -> float:
        """Level of the registered tests."""
        return self.analysis.study.inference.alpha

    @cached_property
    def names(self) -> dict[str, str]:
        """The arm and its reference, for templates."""
        return {
            "arm": self.called[self.contrast.arm],
            "base": self.called[self.contrast.reference],
        }

    @property
    def is_judged(self) -> bool:
        """Whether the contrast can be judged."""
        return not self.verdict.evidence.invalid

    @property
    def survivors_shown(self) -> bool:
        """Whether quality is shown among the runs that did not diverge."""
        return quality_shown(self.contrast, self.alpha) != "Q?"


@dataclass(frozen=True)
class Rule:
    """A row of the table.

    Attributes:
        template: with parameters in braces, as `str.format` reads them.
        when: the condition; it yields parameters.
        judged: whether it is about contrasts that can be judged only.
    """

    code: str
    severity: int
    template: str
    when: Callable[[Context], Parameters]
    judged: bool = True


def _edited(c: Context) -> Parameters:
    if c.analysis.edited:
        yield {"keys": numbers.some(list(c.analysis.edited), MOST_SEEDS)}


def _all_diverged(c: Context) -> Parameters:
    for arm in (c.contrast.reference, c.contrast.arm):
        if c.analysis.all_diverged(arm):
            failed = " or failed" if arm in c.analysis.excluded else ""
            yield {"arm": c.called[arm], "failed": failed}


def _excluded(c: Context) -> Parameters:
    counts = {
        arm: (c.analysis.excluded.get(arm, 0), len(c.analysis.seeds_of(arm)))
        for arm in (c.contrast.arm, c.contrast.reference)
    }
    if not any(failed for failed, _ in counts.values()):
        return
    shares = {failed / max(failed + completed, 1) for failed, completed in counts.values()}
    text = " and ".join(
        f"{failed} of {numbers.plural(failed + completed, 'run')} of {c.called[arm]}"
        for arm, (failed, completed) in counts.items()
    )
    effect = " This may be an effect of the arm." if len(shares) > 1 else ""
    yield {"counts": text, "effect": effect}


def _diverged(c: Context) -> Parameters:
    counted, stability = c.contrast.counting_diverged, c.analysis.stability(c.contrast.arm)
    if counted is None or stability is None or c.verdict.evidence.state.fix != "unshown":
        return
    if not c.survivors_shown:
        return
    rates = stability.diverged
    yield {
        "ours": f"{rates.treatment_events} of {rates.n_treatment} runs of {c.names['arm']}",
        "theirs": f"{rates.baseline_events} of {rates.n_baseline} of {c.names['base']}",
        "change": change_text(counted),
        "p": numbers.p_equals(counted.tested_p),
        "holds": "does not hold" if c.verdict.evidence.state.quality == "Q?" else "holds",
    }


def _described(c: Context) -> Parameters:
    n = c.verdict.evidence.n
    if not c.analysis.runs or n >= DESCRIPTIVE_BELOW:
        return
    pair = (c.contrast.arm, c.contrast.reference)
    values = [list(c.analysis.summary(arm, c.contrast.metric).values.values()) for arm in pair]
    ours, theirs = (
        len(scores) + c.analysis.n_diverged(arm, c.contrast.metric)
        for arm, scores in zip(pair, values, strict=True)
    )
    paired = f", {numbers.plural(n, 'pair')}" if c.analysis.study.is_paired else ""
    means = ""
    if c.contrast.decided is None and all(values):
        change = math.fsum(values[0]) / len(values[0]) - math.fsum(values[1]) / len(values[1])
        digits = max(4, c.contrast.declared.digits)
        means = f" The means differ by {numbers.signed(change, digits)}."
    yield {"ours": numbers.plural(ours, "run"), "theirs": theirs, "paired": paired} | {
        "few": DESCRIPTIVE_BELOW,
        "means": means,
    }


def _no_partner(c: Context) -> Parameters:
    if not (c.analysis.runs and c.analysis.study.is_paired):
        return
    seeds = {arm: c.analysis.seeds_of(arm) for arm in (c.contrast.arm, c.contrast.reference)}
    shared = set.intersection(*seeds.values())
    counts = []
    for arm, own in seeds.items():
        alone = sorted(own - shared)
        diverged = sum(c.analysis.events[arm, seed].diverged for seed in alone)
        named = numbers.some(list(map(str, alone)), MOST_SEEDS)
        and_diverged = f"; {diverged} diverged" if diverged else ""
        if alone:
            counts.append(
                f"{len(alone)} of {len(own)} runs of {c.called[arm]} ({named}{and_diverged})"
            )
    if counts:
        yield {"pairs": numbers.plural(len(shared), "pair"), "counts": " and ".join(counts)}


def _exploratory(c: Context) -> Parameters:
    if c.analysis.runs and c.analysis.runs.exploratory:
        yield {"why": c.analysis.runs.exploratory}


def _pairs_assumed(c: Context) -> Parameters:
    study = c.analysis.study
    if c.analysis.runs and study.is_paired:
        yield {"seed": (study.model_extra or {}).get("runs", {}).get("seed", "seed")}


def _unequal(c: Context) -> Parameters:
    if (runs := c.analysis.runs) is None:
        return
    notes = [text for code, text in runs.notes if code not in ("arms_differ", *MINOR)]
    yield from ({"text": text} for text in notes)
    if runs.refused:
        files = numbers.plural(runs.files, "file")
        yield {"text": _example(f"{len(runs.refused)} of {files} could not be read", runs.refused)}


def _runs(c: Context) -> Parameters:
    runs = c.analysis.runs
    if runs is None:
        return
    files = numbers.plural(runs.files, "file")
    yield from ({"text": text} for code, text in runs.notes if code in MINOR)
    if runs.copies:
        such = f" ({' and '.join(runs.copy_of)})" if runs.copy_of else ""
        copies = numbers.plural(runs.copies, "run")
        yield {"text": f"{copies} counted once, because another has equal values{such}."}
    if runs.skipped:
        yield {"text": _example(f"{len(runs.skipped)} of {files} have no known form", runs.skipped)}


def _example(words: str, files: Sequence[Sequence[str]]) -> str:
    path, why = files[0]
    reason = why.removeprefix(path).lstrip(":, ").rstrip(".")
    return f"{words}, such as {path}: {reason}" + ("" if reason.endswith("?") else ".")


def uncommitted(analysis: Analysis) -> list[Control]:
    """Return the controls of programs that ran with changes that were in no commit."""
    return [c for c in analysis.controls if c.name == "source" and "uncommitted" in c.detail]


def _uncommitted(c: Context) -> Parameters:
    for control in uncommitted(c.analysis):
        if control.arm == c.contrast.arm:
            yield {"detail": control.detail}


def _late_seeds(c: Context) -> Parameters:
    if c.analysis.late_seeds:
        yield {"seeds": ", ".join(map(str, c.analysis.late_seeds))}


def _first_stage(c: Context) -> Parameters:
    if c.analysis.later_stage:
        yield {"why": c.analysis.later_stage}


def _two_stages(c: Context) -> Parameters:
    if c.contrast.sampling and c.contrast.sampling.stage_seeds is not None:
        yield {"text": extension_in_words(c.analysis.study)}


def _not_proven(c: Context) -> Parameters:
    for control in c.analysis.controls:
        if (control.arm, control.state) != (c.contrast.arm, "not proven"):
            continue
        unknown = control.detail.startswith("not recorded") and " against " not in control.detail
        if control.name in NOT_PROVEN and not unknown:
            yield {"what": NOT_PROVEN[control.name], "detail": control.detail}


def _unequal_size(c: Context) -> Parameters:
    if size := size_text(c.analysis, c.contrast.arm):
        yield {"size": size, **c.names}


def _losses(c: Context) -> Parameters:
    if c.verdict.outcome != "ADOPT":
        return
    for contrast_elsewhere in losses_elsewhere(c.analysis, c.contrast):
        yield {"arm": c.names["arm"], "loss": loss_text(c.analysis, contrast_elsewhere)}


def _small_gain(c: Context) -> Parameters:
    if c.verdict.word == "BETTER" and may_be_small(c.verdict):
        margin = c.contrast.declared.stated_text(_margin(c))
        yield {"margin": margin, "arm": c.names["arm"]}


def _margin(c: Context) -> float:
    endpoints = c.analysis.study.endpoints
    return next(e.margin or 0 for e in endpoints if e.metric == c.contrast.metric)


def may_be_small(verdict: Verdict) -> bool:
    """Return whether the interval of a change reaches into the margin."""
    if verdict.margin is None or verdict.low is None or verdict.high is None:
        return False
    return min(abs(verdict.low), abs(verdict.high)) < verdict.margin


def _reused(c: Context) -> Parameters:
    reuse = c.analysis.reuse
    if reuse is None or reuse.first is None or not is_of_text(c.contrast.metric):
        return
    validated = numbers.plural(reuse.validated, "study", "studies")
    opened = f"was the validation text of {validated} before"
    if reuse.opened_for > 1:
        opened = f"opened for the {numbers.ordinal(reuse.opened_for)} study"
        opened += f", after {validated} that validated on it" if reuse.validated else ""
    first = f"'{reuse.first.study}' on {reuse.first.time[:10]}"
    tests = numbers.plural(reuse.tests, "primary test")
    yield {"opened": opened, "first": first, "tests": tests}


def _never_reached(c: Context) -> Parameters:
    if any(c.contrast.censored):
        ours, theirs = c.contrast.censored
        yield {"ours": ours, "theirs": theirs, "n": len(c.contrast.seeds), **c.names}


def _one_seed(c: Context) -> Parameters:
    """Grubbs' test at 1%, on differences of pairs or on the runs of each arm."""
    metric, pairs = c.contrast.declared, c.contrast.paired.pairs if c.contrast.paired else ()
    if c.contrast.unpaired:
        for arm in (c.contrast.arm, c.contrast.reference):
            values = list(c.analysis.summary(arm, c.contrast.metric).values.values())
            place = outlier(values) if len(values) >= DESCRIPTIVE_BELOW else None
            if place is not None:
                value, rest = _apart(values, place)
                yield {
                    "text": f"One run of {c.called[arm]} has {metric.value_text(value)}, others "
                    f"{_span(metric.value_text(rest[0]), metric.value_text(rest[-1]))}."
                }
        return
    if len(pairs) < DESCRIPTIVE_BELOW or metric.scale != "linear":
        return
    place = outlier([pair.delta for pair in pairs])
    if place is None:
        return
    sides = {
        c.names["arm"]: [pair.treatment for pair in pairs],
        c.names["base"]: [pair.baseline for pair in pairs],
    }
    beyond = {}
    for name, values in sides.items():
        value, rest = _apart(values, place)
        beyond[name] = max(rest[0] - value, value - rest[-1])
    name = max(beyond, key=beyond.__getitem__)
    value, rest = _apart(sides[name], place)
    yield {
        "text": f"Seed {c.contrast.seeds[place]} carries most of the spread: {name} has "
        f"{metric.value_text(value)} there, and "
        f"{_span(metric.value_text(rest[0]), metric.value_text(rest[-1]))} at the other seeds."
    }


def _apart(values: Sequence[float], place: int) -> tuple[float, list[float]]:
    return values[place], sorted([*values[:place], *values[place + 1 :]])


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _skewed(c: Context) -> Parameters:
    is_look = c.contrast.sampling is not None and c.contrast.sampling.look
    if not is_look or c.contrast.paired is None or not c.contrast.significant(c.alpha):
        return
    skew, error = skewness([pair.delta for pair in c.contrast.paired.pairs])
    if abs(skew) > SKEWED * error:
        yield {"skew": numbers.signed(skew, 1)}


def _resolution(c: Context) -> Parameters:
    says = c.contrast.decided
    if says is None or not says.constant or says.mean == 0:
        return
    equal = f"All {says.n} differences are equal"
    if says.test == WELCH:
        equal = "All runs of each arm are equal"
    if says.test in CROSSED:
        equal = "Every item differs by the same amount at every seed"
    yield {"equal": equal}


def _tests_disagree(c: Context) -> Parameters:
    says = c.contrast.decided
    disagreeing = [check for check in c.contrast.checks if check.disagrees]
    if says is None or not c.contrast.tested or not disagreeing or c.contrast.equivalent(c.alpha):
        return
    tests = " and ".join(
        f"{one.test} (Holm p {numbers.p_equals(one.holm_p)})" for one in disagreeing
    )
    p = numbers.p_value(c.contrast.tested_p)
    yield {"tests": tests, "decides": TESTS[says.test], "p": p}


def _choice(c: Context) -> Parameters:
    choice, tuning = c.contrast.choice, c.analysis.study.tuning
    if choice is None or tuning is None or (choice.included and choice.how == "vertex"):
        return
    keys = " and ".join(key.rpartition(".")[2].replace("_", " ") for key in tuning.keys)
    share = c.contrast.choice_share
    if choice.included:
        text = (
            f"Each arm has the best {keys} tried, because no curve could be fitted. The error of "
            "this choice is from redrawn tuning seeds and may be too small."
        )
    elif share is None:
        text = f"The error does not include the choice of {keys}: {choice.why_not}."
    else:
        wider = 1 / math.sqrt(1 - share) if share < 1 else math.inf
        text = (
            f"The interval leaves out the choice of {keys}; with it, it would be {wider:.2f} times "
            "as wide."
        )
    yield {"text": text}


def _lack_of_fit(c: Context) -> Parameters:
    if c.wider is None:
        return
    contrast = c.wider.contrast(c.contrast.arm, c.contrast.metric)
    says, word = contrast.decided, word_of(gather(c.wider, contrast))
    if says is None or word == c.verdict.word:
        return
    yield {
        "level": numbers.level(1 - says.interval.level),
        "interval": contrast.declared.span_text(says.interval.low, says.interval.high),
        "word": word,
    }


def _tuning(c: Context) -> Parameters:
    tuned, pair = c.analysis.tuned, (c.contrast.arm, c.contrast.reference)
    if tuned is None:
        return
    for line in tuned.left_open(pair[::-1], dict(c.called)):
        yield {"text": f"Tuning {line}."}
    extremes = tuned.extremes(c.contrast.arm)
    if extremes is not None and extremes[0] is not extremes[1]:
        low, high = (tuned.metric.change_text(shared.mean) for shared in extremes)
        keys = [key.rpartition(".")[2].replace("_", " ") for key in tuned.candidates[0]]
        shared = f"{keys[0]}s" if len(keys) == 1 else "settings"
        if extremes[0].mean < 0 < extremes[1].mean:
            yield {
                "text": f"At equal {shared} the change of {c.names['arm']} is {low} to {high}: its "
                "sign depends on them."
            }
    why = tuned.why_values_differ(*pair, c.alpha, dict(c.called))
    if why and not c.contrast.choice_error:
        yield {"text": f"{why}."}


def _not_tuned(c: Context) -> Parameters:
    rates = {
        c.analysis.study.arm_facts(arm).learning_rate
        for arm in (c.contrast.arm, c.contrast.reference)
    }
    tuning = c.analysis.study.tuning
    if None in rates or (tuning and any("learning_rate" in key for key in tuning.keys)):
        return
    yield {"rates": " and ".join(numbers.compact(rate) for rate in rates if rate is not None)}


def _these_items(c: Context) -> Parameters:
    says = c.contrast.decided
    if c.contrast.items_why_not and says is not None:
        why, test = c.contrast.items_why_not, TESTS[says.test]
        yield {"why": why, "test": test, "target": c.contrast.target}


def _other_text(c: Context) -> Parameters:
    says, text_error = c.contrast.decided, c.contrast.other_text
    if says is None or text_error is None or not c.contrast.tested:
        return
    if text_error.error is None:
        text = f"Measured on {text_error.about} of one text, too few to judge other text by."
        yield {"text": text}
        return
    is_same = c.contrast.equivalent(c.alpha)
    wider = c.contrast.on_other_text(says.equivalence_interval if is_same else says.interval)
    if wider is None or not (is_same or c.contrast.significant(c.alpha)):
        return
    if wider.inside(c.contrast.margin or 0) if is_same else 0 not in wider:
        return
    ends = c.contrast.declared.span_text(wider.low, wider.high)
    yield {
        "text": f"Other text may not show this: with the error of {text_error.about} in it, the "
        f"{numbers.level(1 - wider.level)} interval would be about {ends}."
    }


def _could_miss(c: Context) -> Parameters:
    says, smallest = c.contrast.decided, c.contrast.smallest_effect
    if says is None or smallest is None or says.detectable is None:
        return
    if not c.contrast.could_miss or c.contrast.significant(c.alpha):
        return
    metric = c.contrast.declared
    yield {
        "power": f"{c.analysis.study.inference.power:.0%}",
        "detects": metric.stated_text(says.detectable),
        "smallest": metric.stated_text(smallest),
    }


def _text(c: Context) -> Parameters:
    if c.analysis.text and is_of_text(c.contrast.metric):
        yield {"text": c.analysis.text}


# The gravest first; of equal severity in this order.
CAUTIONS = (
    Rule(
        "edited",
        3,
        "Edited after registration, and shown as registered if that is kept: {keys}.",
        _edited,
        judged=False,
    ),
    Rule("all_diverged", 3, "Every trial of {arm} diverged{failed}.", _all_diverged, judged=False),
    Rule(
        "late_seeds",
        3,
        "Seeds were added after results had been seen ({seeds}): no error rate is guaranteed.",
        _late_seeds,
        judged=False,
    ),
    Rule("two_stages", 3, "{text}", _two_stages, judged=False),
    Rule(
        "first_stage",
        3,
        "This is about the first stage only: the second does not count, as {why}.",
        _first_stage,
        judged=False,
    ),
    Rule("unequal", 3, "{text}", _unequal, judged=False),
    Rule("exploratory", 3, "Exploratory: {why}.", _exploratory, judged=False),
    Rule("excluded", 3, "Failed runs are excluded: {counts}.{effect}", _excluded, judged=False),
    Rule(
        "diverged",
        3,
        "{ours} and {theirs} diverged and are not in the change. Counted at the worst finite "
        "score, the change is {change}, Holm p {p}: the result {holds}.",
        _diverged,
    ),
    Rule(
        "described",
        2,
        "{arm} has {ours} and {base} {theirs}{paired}: fewer than {few} are described, not "
        "tested.{means}",
        _described,
        judged=False,
    ),
    Rule(
        "no_partner",
        2,
        "{pairs} compared. Runs whose seed the other arm lacks are excluded: {counts}.",
        _no_partner,
        judged=False,
    ),
    Rule("runs", 2, "{text}", _runs, judged=False),
    Rule("worse_elsewhere", 2, "{arm} is worse in {loss}.", _losses),
    Rule("not_proven", 2, "{what}: {detail}.", _not_proven, judged=False),
    Rule(
        "lack_of_fit",
        2,
        "The registered error leaves out how badly a parabola fits the tuning curve. With it the "
        "{level} interval is {interval}, and the word would be {word}.",
        _lack_of_fit,
    ),
    Rule("tuning", 2, "{text}", _tuning),
    Rule("choice", 2, "{text}", _choice),
    Rule("other_text", 2, "{text}", _other_text),
    Rule("one_seed", 2, "{text}", _one_seed),
    Rule(
        "tests_disagree",
        2,
        "Other tests disagree: {tests}. The {decides} was registered and decides ({p}).",
        _tests_disagree,
    ),
    Rule(
        "skewed",
        2,
        "The differences are skewed (skewness {skew}). The boundaries of interim analyses assume "
        "normal differences: with strong skew an effect is claimed too often.",
        _skewed,
    ),
    Rule(
        "resolution",
        2,
        "{equal}: the effect is at the resolution of the measurement, and p the least that this "
        "resolution allows.",
        _resolution,
    ),
    Rule(
        "never_reached",
        2,
        "{arm} did not reach the target in {ours} of {n} seeds, {base} in {theirs}, within the "
        "smaller budget of each pair: SAME cannot be shown.",
        _never_reached,
    ),
    Rule(
        "these_items",
        2,
        "Items cannot be paired, as {why}: the {test} on seed means decides, and the claim is "
        "about {target}, not about new items.",
        _these_items,
    ),
    Rule(
        "small_gain",
        1,
        "The gain of {arm} may be smaller than the margin of {margin}.",
        _small_gain,
    ),
    Rule(
        "could_miss",
        1,
        "With {power} power this study detects a change of {detects}; the smallest effect worth "
        "detecting, {smallest}, may have been missed.",
        _could_miss,
    ),
    Rule(
        "reused",
        1,
        "Test text {opened}; the first was {first}. {tests} on it in all (p_over_studies in "
        "verdict.json).",
        _reused,
    ),
    Rule("unequal_size", 1, "Not at equal cost: {arm} has {size} than {base}.", _unequal_size),
    Rule(
        "pairs_assumed",
        1,
        "Runs of one {seed} are assumed to share data and initial values; that is not recorded.",
        _pairs_assumed,
        judged=False,
    ),
    Rule(
        "uncommitted",
        1,
        "Only the digest of uncommitted changes is recorded: {detail}.",
        _uncommitted,
        judged=False,
    ),
    Rule("not_tuned", 0, "At learning rate {rates}, which was not tuned.", _not_tuned),
    Rule("text", 0, "{text}", _text),
)
CODES = tuple(rule.code for rule in CAUTIONS)
ON_ROW = ("all_diverged", "unequal_size", "small_gain")  # the card shows them beside the word


def cautions_of(
    analysis: Analysis, verdict: Verdict, called: Mapping[str, str], wider: Analysis | None
) -> tuple[Caution, ...]:
    """Return the cautions of a verdict, the gravest first."""
    contrast = analysis.contrast(verdict.arm, verdict.metric)
    context = Context(analysis, contrast, verdict, called, wider)
    return tuple(
        Caution(rule.code, rule.severity, rule.template.format(**(context.names | dict(values))))
        for rule in CAUTIONS
        if context.is_judged or not rule.judged
        for values in rule.when(context)
    )


def all_cautions(
    analysis: Analysis, verdicts: Sequence[Verdict], called: Mapping[str, str]
) -> list[tuple[Caution, ...]]:
    """Return the cautions of every verdict."""
    wider = with_lack_of_fit(analysis)
    return [cautions_of(analysis, verdict, called, wider) for verdict in verdicts]


# Why no number of runs would resolve a verdict, by the code of `decision.Needed`.
NO_NUMBER: dict[str, str] = {
    "all_diverged": "every trial of an arm diverged",
    "more_harm": "more runs would show harm at these rates",
    "survivors_disagree": "surviving and diverged runs disagree",
    "events_disagree": "divergence and spikes disagree",
    "no_cure": "at these rates of failure more seeds show no cure",
    "not_with_runs": "not with more runs",
    "other_error": "no number of runs is enough",
    "not_compared": "not compared",
    "few_pairs": "too few pairs to plan from",
    "censored": "more runs of the same budget show no more",
    "no_margin": "no margin is registered",
    "no_spread": "the test has no spread to plan from",
    "constant": "nothing varies from seed to seed",
}


def needs_text(verdict: Verdict, *, is_paired: bool) -> str:
    """Return what would resolve a verdict: `~36 seeds, or more questions`; empty for nothing."""
    needed = verdict.needed
    runs = "seeds" if is_paired else "runs an arm"
    number = f"~{needed.pairs:,} {runs}" if needed.pairs else ""
    if number or needed.instead:
        return ", or ".join(filter(None, (number, needed.instead)))
    return NO_NUMBER.get(needed.why_not, "")
