"""Cautions: warnings about a verdict, each with a code, a severity and a condition.

A condition is a generator of sentences, empty if the caution does not apply. The terminal card
shows only the most severe caution of a study; the page and `--verbose` show all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from paribus import numbers
from paribus.analysis import Analysis, Contrast
from paribus.analysis.contrasts import with_lack_of_fit
from paribus.decision import Depends, Verdict, Verdicts, find_rule, unreachable, word_of
from paribus.decision.evidence import gather, quality_shown
from paribus.decision.reach import least_events_p
from paribus.decision.verdict import is_of_text
from paribus.errors import one_line
from paribus.report.cells import TESTS, change_text, join_some, key_text
from paribus.statistics import DESCRIPTIVE_BELOW, skewness
from paribus.study import Study

MOST_SEEDS = 3  # that a caution names
# Findings about finished runs that come after the others.
MINOR = ("file", "resumed")
# Findings that the card states below its rows.
READING = ("arms_differ", "horizon", "may_pair")
SKEWED = 1.96  # standard errors; one in 20 samples of normal differences is beyond
# What a control that is not proven means.
NOT_PROVEN = {
    "held-out text": "The held-out text may overlap with the training text",
    "budget": "Budgets are not proven to be equal",
    "initial values": "Initial values are not proven to differ between seeds",
    "steps": "Scores are not proven to be from the same step",
    "software": "An arm and its reference were trained on different machines or software",
}


@dataclass(frozen=True)
class Caution:
    """Caution about one verdict: a code, a severity from 1 to 3 (most severe), and a sentence."""

    code: str
    severity: int
    text: str


@dataclass(frozen=True)
class Context:
    """Arguments of a caution's condition: a contrast, its verdict and the analysis.

    Attributes:
        wider: the same analysis with every standard error including lack of fit of the tuning
            curve.
    """

    analysis: Analysis
    contrast: Contrast
    verdict: Verdict
    wider: Analysis

    @property
    def called(self) -> Mapping[str, str]:
        """Titles of the arms, keyed by name."""
        return self.analysis.study.called

    @property
    def pair(self) -> tuple[str, str]:
        """Names of the arm and its reference."""
        return self.contrast.arm, self.contrast.reference

    @property
    def arm(self) -> str:
        """Title of the arm."""
        return self.called[self.contrast.arm]

    @property
    def base(self) -> str:
        """Title of the reference."""
        return self.called[self.contrast.reference]

    @property
    def alpha(self) -> float:
        """Significance level of the registered tests."""
        return self.analysis.study.inference.alpha


Condition = Callable[[Context], Iterator[str]]
# Code, severity, whether it is about contrasts that can be judged only, and the sentences; of equal
# severity in the order of this file.
CAUTIONS: list[tuple[str, int, bool, Condition]] = []


def caution(code: str, severity: int, *, judged: bool = True) -> Callable[[Condition], None]:
    """Return a decorator that registers a function as the condition of a caution.

    Args:
        judged: whether to skip contrasts whose verdict is INVALID.
    """
    return lambda sentences: CAUTIONS.append((code, severity, judged, sentences))


@caution("edited", 3, judged=False)
def _(c: Context) -> Iterator[str]:
    if c.analysis.edited:
        keys = numbers.some(c.analysis.edited, MOST_SEEDS)
        yield f"Edited after registration (this report uses the registered values): {keys}."


@caution("excluded", 3, judged=False)
def _(c: Context) -> Iterator[str]:
    failed = {arm: c.analysis.excluded.get(arm, 0) for arm in c.pair}
    runs = {arm: n + len(c.analysis.seeds_of(arm)) for arm, n in failed.items()}
    if not any(failed.values()):
        return
    text = " and ".join(
        f"{n} of {numbers.plural(runs[arm], 'run')} of {c.called[arm]}" for arm, n in failed.items()
    )
    is_equal = len({n / max(runs[arm], 1) for arm, n in failed.items()}) == 1
    effect = "" if is_equal else " The arm itself may cause failures."
    yield f"Failed runs are excluded: {text}.{effect}"


def extension_text(study: Study) -> str:
    """Describe a second stage: its sample size, the combination method and the error rate."""
    first, second = study.stages
    return (
        f"A second stage of {second} seeds was registered after the first stage of {first} seeds. "
        "Both are combined by the inverse-normal method with weights fixed before the first stage "
        "(Lehmacher and Wassmer 1999). If the first stage was also tested by itself, the total "
        f"false-positive rate exceeds {study.inference.alpha:g} (8.3% for two equal stages at 5%)."
    )


@caution("two_stages", 3, judged=False)
def _(c: Context) -> Iterator[str]:
    if c.contrast.sampling and c.contrast.sampling.stage_seeds is not None:
        yield extension_text(c.analysis.study)


@caution("unequal", 3, judged=False)
def _(c: Context) -> Iterator[str]:
    if (runs := c.analysis.runs) is None:
        return
    yield from (text for code, text in runs.notes if code not in (*READING, *MINOR))
    if runs.refused:
        files = numbers.plural(runs.files, "file")
        yield _example(f"{len(runs.refused)} of {files} could not be read", runs.refused)


@caution("exploratory", 3, judged=False)
def _(c: Context) -> Iterator[str]:
    if c.analysis.runs and c.analysis.runs.exploratory:
        yield f"Exploratory: {c.analysis.runs.exploratory}."


@caution("diverged", 3)
def _(c: Context) -> Iterator[str]:
    counted, stability = c.contrast.counting_diverged, c.analysis.stability(c.contrast.arm)
    if counted is None or stability is None or c.verdict.evidence.state.fix != "unshown":
        return
    if quality_shown(c.contrast, c.alpha) == "Q?":
        return
    rates = stability.diverged
    holds = "does not hold" if c.verdict.evidence.state.quality == "Q?" else "holds"
    yield (
        f"{rates.treatment_events} of {rates.n_treatment} runs of {c.arm} and "
        f"{rates.baseline_events} of {rates.n_baseline} of {c.base} diverged and are excluded from "
        "the change. With diverged runs set to the worst finite score, the change is "
        f"{change_text(counted)}, Holm p {numbers.p_equals(counted.holm_p)}: the result {holds}."
    )


@caution("runs", 2, judged=False)
def _(c: Context) -> Iterator[str]:
    runs = c.analysis.runs
    if runs is None:
        return
    files = numbers.plural(runs.files, "file")
    yield from (text for code, text in runs.notes if code in MINOR)
    if runs.copies:
        such = f" ({' and '.join(runs.copy_of)})" if runs.copy_of else ""
        copies = numbers.plural(runs.copies, "run")
        yield f"Excluded as duplicates: {copies} with the same values as another run{such}."
    if runs.skipped:
        yield _example(f"{len(runs.skipped)} of {files} have an unknown format", runs.skipped)


def _example(words: str, files: Sequence[Sequence[str]]) -> str:
    path, why = files[0]
    reason = why.removeprefix(path).lstrip(":, ").rstrip(".")
    return f"{words}, such as {path}: {reason}" + ("" if reason.endswith("?") else ".")


@caution("not_proven", 2, judged=False)
def _(c: Context) -> Iterator[str]:
    for control in c.analysis.controls:
        if (control.arm, control.state) != (c.contrast.arm, "not proven"):
            continue
        unknown = control.detail.startswith("not recorded") and " against " not in control.detail
        if control.name in NOT_PROVEN and not unknown:
            yield f"{NOT_PROVEN[control.name]}: {control.detail}."


@caution("lack_of_fit", 2)
def _(c: Context) -> Iterator[str]:
    contrast = c.wider.contrast(c.contrast.arm, c.contrast.metric)
    says, word = contrast.decided, word_of(gather(c.wider, contrast))
    if says is not None and word != c.verdict.word:
        interval = contrast.declared.span_text(says.interval.low, says.interval.high)
        yield (
            "The registered standard error excludes the tuning curve's lack of fit. With it, the "
            f"{numbers.level(1 - says.interval.level)} interval is {interval}, and the verdict "
            f"would be {word}."
        )


@caution("tuning", 2)
def _(c: Context) -> Iterator[str]:
    tuned = c.analysis.tuned
    if tuned is None:
        return
    for arm in c.pair[::-1]:
        yield from (f"Tuning of {c.called[arm]}: {line}." for line in tuned.caveats.get(arm, []))
    changes = {}
    for arm, reference in c.analysis.study.contrasts:  # one sentence for all arms
        extremes = tuned.extremes(arm, reference)
        if extremes is not None and extremes[0] < 0 < extremes[1]:
            low, high = map(tuned.metric.change_text, extremes)
            changes[arm] = f"{low} to {high} ({c.called[arm]})"
    if c.contrast.arm in changes:
        keys = list(map(key_text, tuned.candidates[0]))
        shared = f"{keys[0]}s" if len(keys) == 1 else "settings"
        ranges = numbers.some(list(changes.values()), MOST_SEEDS)
        yield f"At equal {shared}, the sign of the change depends on their value: {ranges}."


@caution("choice", 2)
def _(c: Context) -> Iterator[str]:
    choice, tuning = c.contrast.choice, c.analysis.study.tuning
    if choice is None or tuning is None or (choice.included and choice.how == "vertex"):
        return
    keys = " and ".join(map(key_text, tuning.keys))
    if choice.included:
        yield (
            f"Each arm uses the best {keys} tried, because no curve could be fitted. The error of "
            "this selection is estimated by resampling tuning seeds and may be too small."
        )
    else:
        why = choice.why_not or "the study treats it as fixed"
        yield f"The standard error excludes the selection of {keys}: {why}."


@caution("tests_disagree", 2)
def _(c: Context) -> Iterator[str]:
    says = c.contrast.decided
    disagreeing = [
        f"{check.test} (Holm p {numbers.p_equals(check.holm_p)})"
        for check in c.contrast.checks
        if check.disagrees
    ]
    if says is None or not c.contrast.tested or not disagreeing or c.contrast.equivalent(c.alpha):
        return
    yield (
        f"Other tests disagree: {' and '.join(disagreeing)}. The {TESTS[says.test]} was registered "
        f"and decides (Holm p {numbers.p_equals(c.contrast.holm_p)})."
    )


@caution("skewed", 2)
def _(c: Context) -> Iterator[str]:
    is_look = c.contrast.sampling is not None and c.contrast.sampling.look
    if not is_look or c.contrast.by_run is None or not c.contrast.significant(c.alpha):
        return
    skew, error = skewness([pair.delta for pair in c.contrast.by_run.pairs])
    if abs(skew) > SKEWED * error:
        yield (
            f"The differences are skewed (skewness {numbers.signed(skew, 1)}). The boundaries of "
            "interim analyses assume normal differences; strong skew inflates the false-positive "
            "rate."
        )


@caution("resolution", 2)
def _(c: Context) -> Iterator[str]:
    says = c.contrast.decided
    if says is not None and says.constant and says.mean != 0:
        yield (
            "All differences are equal, so their spread is below the resolution of the "
            "measurement. The p-value is the smallest that this resolution allows."
        )


@caution("never_reached", 2)
def _(c: Context) -> Iterator[str]:
    if any(c.contrast.censored):
        ours, theirs = c.contrast.censored
        yield (
            f"{c.arm} did not reach the target in {ours} of {len(c.contrast.seeds)} seeds, and "
            f"{c.base} in {theirs}, within the smaller budget of each pair. The verdict therefore "
            "cannot be SAME."
        )


@caution("these_items", 2)
def _(c: Context) -> Iterator[str]:
    says = c.contrast.decided
    if c.contrast.items_why_not and says is not None:
        target = c.contrast.target or "these items"
        yield (
            f"Items cannot be paired, because {c.contrast.items_why_not}. The {TESTS[says.test]} "
            f"on seed means decides, and the verdict applies to {target}, not to new items."
        )


def may_be_small(verdict: Verdict) -> bool:
    """Return whether the change may be smaller than the margin, judging by its interval."""
    if verdict.margin is None or verdict.low is None or verdict.high is None:
        return False
    return min(abs(verdict.low), abs(verdict.high)) < verdict.margin


@caution("could_miss", 1)
def _(c: Context) -> Iterator[str]:
    smallest, stated = c.contrast.smallest_effect or 0.0, c.contrast.declared.stated_text
    detectable: dict[str, float] = {}
    for contrast in c.analysis.contrasts:
        says = contrast.decided
        if contrast.metric != c.contrast.metric or says is None or says.descriptive_only:
            continue
        if says.detectable > smallest > 0 and not contrast.significant(c.alpha):
            detectable[contrast.arm] = says.detectable
    if c.contrast.arm in detectable:  # one sentence for all arms
        yield (
            f"With {c.analysis.study.inference.power:.0%} power this study detects a change of "
            f"{stated(max(detectable.values()))}; the smallest effect worth detecting, "
            f"{stated(smallest)}, may have been missed."
        )


@caution("reused", 1)
def _(c: Context) -> Iterator[str]:
    reuse = c.analysis.reuse
    if reuse is None or reuse.first is None or not is_of_text(c.contrast.metric):
        return
    also = f", and used earlier for validation by {reuse.validated}" if reuse.validated else ""
    yield (
        f"The test text was opened for {numbers.plural(reuse.opened_for, 'study', 'studies')}"
        f"{also}; the first was '{reuse.first.study}' on {reuse.first.time[:10]}. Primary tests "
        f"on this text so far: {reuse.tests} (see p_over_studies in verdict.json)."
    )


@caution("pairs_assumed", 1, judged=False)
def _(c: Context) -> Iterator[str]:
    study = c.analysis.study
    if c.analysis.runs and study.is_paired:
        seed = (study.model_extra or {}).get("runs", {}).get("seed", "seed")
        yield (
            f"Runs with the same {seed} are assumed to share data and initial values, which is not "
            "recorded."
        )


@caution("not_tuned", 1)
def _(c: Context) -> Iterator[str]:
    study = c.analysis.study
    set_on_purpose = [
        *(study.tuning.keys if study.tuning else ()),
        *study.differences(c.contrast.arm),
    ]
    rate = study.arm_facts(c.contrast.arm).learning_rate
    if rate is not None and not any("learning_rate" in key for key in set_on_purpose):
        yield f"The learning rate, {numbers.compact(rate)}, was not tuned."


def all_cautions(verdicts: Verdicts) -> list[tuple[Caution, ...]]:
    """Return one tuple of cautions per verdict, most severe first."""
    each, analysis, wider = [], verdicts.analysis, with_lack_of_fit(verdicts.analysis)
    for verdict in verdicts:
        contrast = analysis.contrast(verdict.arm, verdict.metric)
        context = Context(analysis, contrast, verdict, wider)
        cautions = [
            Caution(code, severity, one_line(text))  # it may quote files and their names
            for code, severity, judged, sentences in CAUTIONS
            if not (judged and verdict.evidence.invalid)
            for text in sentences(context)
        ]
        each.append(tuple(sorted(cautions, key=lambda caution: -caution.severity)))
    return each


def shown_cautions(verdicts: Verdicts, every: Sequence[tuple[Caution, ...]]) -> Iterator[Caution]:
    """Yield unique cautions, most severe first.

    A caution that applies to some of the arms is prefixed with their titles.
    """
    analysis, called = verdicts.analysis, verdicts.analysis.study.called
    arms: dict[Caution, list[str]] = {}
    for verdict, cautions in zip(verdicts, every, strict=True):
        # What an unfinished study lacks stands on its own line.
        invalid = "" if analysis.missing else invalid_text(analysis, verdict)
        for caution in (Caution("invalid", 3, invalid), *cautions):
            if caution.text:
                arms.setdefault(caution, []).append(called[verdict.arm])
    order = ["invalid", *(code for code, *_ in CAUTIONS)]
    for caution in sorted(arms, key=lambda c: (-c.severity, order.index(c.code))):
        named = list(dict.fromkeys(arms[caution]))
        is_of_all = len(named) == len(analysis.study.contrasts)
        if is_of_all or any(arm in caution.text for arm in called.values()):
            yield caution
        else:
            yield replace(caution, text=f"{join_some(named)}: {caution.text}")


# Why no number of runs would resolve a verdict, by the code of `decision.Needed`, where it names
# nothing else that would.
NO_NUMBER: dict[str, str] = {
    "more_harm": "more runs would show harm at these rates",
    "survivors_disagree": "surviving and diverged runs disagree",
    "events_disagree": "divergence and spikes disagree",
    "no_cure": "more seeds would not show a lower divergence rate",
    "not_with_runs": "more runs would not resolve this",
    "not_compared": "not compared",
    "constant": "no variation between seeds",
}


# What would resolve a verdict besides more seeds, by its code.
INSTEAD: dict[str, str] = {
    "seeds": "more seeds",
    "tuning_seeds": "more tuning seeds",
    "grid": "a finer grid around the optimum",
    "items": "more {items}",
    "survivors": "trials that do not diverge",
    "budget": "a larger budget",
    "margin": "a margin",
}


def instead_text(analysis: Analysis, verdict: Verdict) -> str:
    """Name what would resolve a verdict apart from more seeds, such as `more questions`."""
    items = analysis.contrast(verdict.arm, verdict.metric).items_about.rpartition(" ")[2]
    return INSTEAD.get(verdict.needed.instead, "").format(items=items)


def needs_text(analysis: Analysis, verdict: Verdict) -> str:
    """Name what would resolve a verdict, such as `~36 seeds, or more questions`.

    If nothing would, the reason is returned, or "" if none is known.
    """
    needed, instead = verdict.needed, instead_text(analysis, verdict)
    runs = "seeds" if analysis.study.is_paired else "runs per arm"
    if needed.why_not == "no_margin":  # more runs may show a change, and a margin its absence
        return f"more {runs}, or {instead}"
    number = f"~{needed.pairs:,} {runs}" if needed.pairs else ""
    return ", or ".join(filter(None, (number, instead))) or NO_NUMBER.get(needed.why_not, "")


def invalid_text(analysis: Analysis, verdict: Verdict) -> str:
    """Return the reason why a verdict is INVALID, or "" if it is valid."""
    code, contrast = verdict.evidence.invalid, analysis.contrast(verdict.arm, verdict.metric)
    if code == "missing":
        return f"trials are missing: {numbers.some(analysis.missing_of(contrast))}"
    if code == "broken":
        control = analysis.broken(verdict.arm)[0]
        return f"{control.name}: {control.detail}"
    return {"unregistered": analysis.unregistered, "untested": analysis.untested}.get(code, "")


def why_no_interaction(verdicts: Verdicts, interaction: Depends) -> str:
    """Return the reason why an interaction cannot be judged, or "" if it can."""
    by_arm = {
        v.arm: invalid_text(verdicts.analysis, v)
        for v in verdicts
        if v.metric == interaction.metric
    }
    texts = (by_arm.get(arm) for arm in (*interaction.of, *interaction.than))
    return next(filter(None, texts), interaction.why_not)


# Why a row of the rule cannot decide, by the code of `decision.reach.dead_rows`.
DEAD: dict[str, str] = {
    "few_seeds": "{seeds} cannot be tested (at least {least} are needed)",
    "no_events": "{n} seeds cannot show that an arm cures or causes instability (the exact p of "
    "{contrasts} is at least {p:.3g})",
    "no_limit": "no cost has a limit",
    "no_benefit": "no benefit is specified",
    "no_other_endpoint": "no other endpoint is primary",
}


def unreachable_text(study: Study) -> list[str]:
    """Return a line for each outcome of the decision rule that cannot occur in this study."""
    n = len(study.seeds)
    values = {
        "n": n,
        "seeds": numbers.plural(n, "seed"),
        "least": DESCRIPTIVE_BELOW,
        "contrasts": numbers.plural(len(study.contrasts), "contrast"),
        "p": least_events_p(study) or 0.0,
    }
    texts = {code: text.format(**values) for code, text in DEAD.items()}
    rule, lines = find_rule(study).name, []
    for name, claim, reasons in unreachable(study):
        subject = f"the rule {name} cannot adopt any arm"
        subject = subject if claim == "adopted" else f"{name} cannot be {claim}"
        why = "; ".join(texts[code] for code in reasons) or f"the rule {rule} has no such outcome"
        lines.append(f"{subject}: {why}")
    return lines
