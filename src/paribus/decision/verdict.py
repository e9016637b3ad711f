"""The verdict on every contrast: the row that fired, in plain words with its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paribus import numbers
from paribus.analysis import Analysis, Contrast, Cost, Tuned, extension_in_words
from paribus.analysis.lack_of_fit import with_lack_of_fit
from paribus.decision.evidence import (
    Evidence,
    benefit_of,
    cost_of,
    gather,
    losses_elsewhere,
    quality_shown,
    stated,
    without_score,
    worse_elsewhere,
)
from paribus.decision.hypotheses import judge, said_by
from paribus.decision.interactions import Depends, depends
from paribus.decision.reach import Needed, needed
from paribus.decision.rule import OUTCOMES, Row, Rule
from paribus.decision.rules import rule_of
from paribus.decision.word import WORDS, Word, rests_on_events, word_of
from paribus.results import Control
from paribus.results.records import RunsRecord
from paribus.shown import Shown
from paribus.statistics import CROSSED, DESCRIPTIVE_BELOW, WELCH, Decided
from paribus.statistics.outliers import outlier, skewness
from paribus.study import Study, at_rates
from paribus.study.tuning_study import TASKS

# What `Decided.test` is called in a sentence.
TESTS = {
    "paired_t": "paired t",
    "welch_t": "Welch's t",
    "crossed_welch": "t with the errors of runs and items",
    "crossed_components": "t with the errors of seeds and items",
    "crossed_bootstrap": "crossed bootstrap of seeds and items",
}
UNEQUAL = 0.03  # of the parameters or FLOPs of the reference: below it, an arm is as large
UNCOMMITTED = "uncommitted"  # in the evidence of a command's source
IDENTICAL = "0 (identical to rounding)"
SEEDS_TOLD = 5  # of runs without a partner
SKEWED = 1.96  # standard errors; one in 20 samples of normal differences is beyond
MOST_DIGITS = 12  # of a change that is too small for those of its metric
AGAINST = " against "
LACK_OF_FIT = "lack_of_fit"  # code of a caution
EFFECTS = ("quality", "not worse")  # what is open where an effect is
# Controls that qualify a verdict where they are not proven.
NOT_PROVEN = {
    "held-out text": "Held-out text is not proven to be held out",
    "budget": "Budgets are not proven to be equal",
    "initial values": "Initial values are not proven to be drawn anew for every seed",
    "steps": "Scores are not shown to be of the same step",
    "software": "An arm and its reference were trained on different machines or software",
}
# Of a cost and its budget.
BUDGETS = {
    "within": " (within its budget)",
    "over": " (over its budget)",
    "not shown": " (not shown to be within its budget)",
    None: "",
}


@dataclass(frozen=True)
class Caution:
    """What an answer depends on, and a reader must know besides: a sentence, and its code."""

    code: str
    text: str


@dataclass(frozen=True)
class Verdict:
    """A decision on one arm and one endpoint.

    Attributes:
        arm, reference: what is compared with what.
        metric, label: of the endpoint, and what readers call it.
        word: what the evidence says of the arm (see `decision.word`).
        cost: of a BETTER arm, what is not known of its cost or is too much; empty for nothing.
        effect, low, high: the change at the same seed in the metric's unit (of what is compared as
            a ratio, in logarithms), and its interval of level 1 - alpha by the test that decides.
        p, adjusted_p: of that test, and by Holm's method over the family; None where untested.
        n: seed pairs that the effect is over.
        target: what the claim is about besides new seeds: `this text`, or `text like these 40
            documents`; empty for nothing else.
        text_error: of a claim of this text: the standard error that the choice of text would add,
            over documents or contiguous blocks; None where it is not known, or in the interval.
        margin: the registered one, within which a change is too small to matter.
        action: what the study's rule says to do, in words.
        rule: the registered one, whose row fired.
        row, outcome, reason: of the row.
        supports, contradicts: hypotheses of the study, by name.
        evidence: what it fired on.
        answer: the verdict in plain words, with the change, its interval and its p.
        pairs_needed: seed pairs, or runs of each arm, that would resolve an UNRESOLVED arm, or what
            the rule leaves undecided, at the registered power; None where no number is known.
        pairs_why_not: why none is known; empty where one is, or nothing is left to resolve.
        needs: what would resolve it, in a few words: `~36 seeds`, `more questions`; empty where
            nobody knows, or nothing is left to resolve.
        cautions: what the answer depends on, the most important first.
        tie_breaks: calibration and throughput, which break ties where quality does not decide.
        p_over_studies: `adjusted_p` times the studies that make primary tests on this test text, as
            far as the ledger knew when it was opened: Bonferroni's bound over them. It decides
            nothing. None where no ledger was asked, or the metric is not of that text.
    """

    arm: str
    reference: str
    metric: str
    label: str
    word: Word
    cost: str
    effect: float | None
    low: float | None
    high: float | None
    p: float | None
    adjusted_p: float | None
    n: int
    target: str
    text_error: float | None
    margin: float | None
    action: str
    rule: str
    row: str
    outcome: str
    reason: str
    supports: tuple[str, ...]
    contradicts: tuple[str, ...]
    evidence: Evidence
    answer: str
    pairs_needed: int | None
    pairs_why_not: str
    needs: str
    cautions: tuple[Caution, ...] = ()
    tie_breaks: tuple[str, ...] = ()
    p_over_studies: float | None = None

    def __repr__(self) -> str:
        """Return the sentence that answers, without what it depends on."""
        return f"<Verdict {self.arm}, {self.metric}: {self.badge}. {self.answer}>"

    @property
    def caveats(self) -> tuple[str, ...]:
        """The sentences of `cautions` that the answer does not say already."""
        return tuple(one.text for one in self.cautions if one.code != "not_tuned")

    @property
    def sentence(self) -> str:
        """All of it: the answer, and then what it depends on."""
        return " ".join([self.answer, *self.caveats])

    @property
    def badge(self) -> str:
        """The word, and what is to be known of the cost: `BETTER (cost not measured)`."""
        return f"{self.word} ({self.cost})" if self.cost else self.word


class Verdicts(Shown, list[Verdict]):
    """The verdicts on a study, primary endpoint by primary endpoint, and what they rest on."""

    def __init__(self, analysis: Analysis, verdicts: Iterable[Verdict]) -> None:
        super().__init__(verdicts)
        self.analysis = analysis

    @property
    def interactions(self) -> list[Depends]:
        """Whether effects depend on something else, where the study asks."""
        return depends(self.analysis, self)

    @property
    def beside(self) -> list[Beside]:
        """How the arms changed on the secondary endpoints, which decide nothing."""
        return beside(self.analysis)

    def __repr__(self) -> str:
        """Return the word on each arm, endpoint by endpoint."""
        said = (
            f"{metric}: "
            + ", ".join(f"{one.arm} {one.word}" for one in self if one.metric == metric)
            for metric in dict.fromkeys(one.metric for one in self)
        )
        return f"<Verdicts {'; '.join(said)}>"


def decide(analysis: Analysis, *, titles: bool = False) -> Verdicts:
    """Decide every contrast of the study on every primary endpoint, by its rule. Its sentences call
    arms by their names; with `titles` by these, as the page does."""
    rule, told = rule_of(analysis), analysis if titles else analysis.by_name
    wider = with_lack_of_fit(told)
    found = [
        _verdict(told, rule, told.contrast(arm, endpoint.metric), wider)
        for endpoint in analysis.study.judged
        for arm, _ in analysis.study.contrasts
    ]
    return Verdicts(analysis, found)


def titled(analysis: Analysis, verdicts: list[Verdict]) -> list[Verdict]:
    """Return the verdicts with sentences that call arms by their titles, as the page does."""
    called = analysis.study.called
    return decide(analysis, titles=True) if any(arm != called[arm] for arm in called) else verdicts


@dataclass(frozen=True)
class Beside:
    """How an arm changed on an endpoint that decides nothing.

    Attributes:
        arm, reference, metric, label, effect, low, high, n: as a `Verdict` has them.
        adjusted_p: by Holm's method over the secondary endpoints; None where untested.
        why_not: why nothing was inferred; empty where it was.
        never_reached: of what is needed to a target, how many trials of the arm and of its
            reference never came there; they count with their budget, so that a difference may be
            larger.
    """

    arm: str
    reference: str
    metric: str
    label: str
    effect: float | None
    low: float | None
    high: float | None
    adjusted_p: float | None
    n: int
    why_not: str
    never_reached: tuple[int, int] = (0, 0)


def beside(analysis: Analysis) -> list[Beside]:
    """Return every contrast on the secondary endpoints, endpoint by endpoint."""
    found = []
    for endpoint in analysis.study.endpoints:
        for arm, reference in analysis.study.contrasts if not endpoint.primary else ():
            contrast = analysis.contrast(arm, endpoint.metric)
            says = contrast.decided
            one = Beside(
                arm=arm,
                reference=reference,
                metric=endpoint.metric,
                label=contrast.declared.label,
                **_finite(stated(says)),
                adjusted_p=contrast.tested_p,
                why_not=contrast.why_not,
                never_reached=contrast.censored,
            )
            found.append(one)
    return found


def verdict_record(analysis: Analysis, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the contents of verdict.json. Hypotheses and interactions appear only if the study has
    some."""
    study, told = analysis.study, []
    for verdict in verdicts:
        seen = verdict.evidence
        evidence = {"invalid": seen.invalid, "n": seen.n} | seen.state._asdict()
        more = {"evidence": evidence, "sentence": verdict.sentence}
        told.append(_finite(asdict(verdict)) | _registered_cautions(verdict) | more)
    judged = [asdict(one) for one in judge(study, verdicts)]
    interactions = [
        _finite({key: of for key, of in vars(one).items() if key != "found"})
        for one in depends(analysis, verdicts)
    ]
    more = {
        "hypotheses": judged,
        "interactions": interactions,
        "excluded": analysis.excluded,
    }
    secondary = [
        {k: of for k, of in asdict(one).items() if k != "never_reached" or any(of)}
        for one in beside(analysis)
    ]
    return {"verdicts": told, "secondary": secondary} | {k: of for k, of in more.items() if of}


def _registered_cautions(verdict: Verdict) -> dict[str, Any]:
    """Return the cautions that follow from what was registered.

    Lack of fit that was not registered is shown beside the verdict and not recorded in it.
    """
    return {"cautions": [asdict(one) for one in verdict.cautions if one.code != LACK_OF_FIT]}


def _finite(table: dict[str, Any]) -> dict[str, Any]:
    """Return what is stated as JSON has it: no end of an interval is infinite."""
    ends = {name: table[name] for name in ("effect", "low", "high")}
    return table | {
        k: None if of is None or not math.isfinite(of) else of for k, of in ends.items()
    }


def shared_caveats(verdicts: Sequence[Verdict]) -> list[str]:
    """Return what all these verdicts depend on alike, a sentence each."""
    first, *others = [list(verdict.caveats) for verdict in verdicts] or [[]]
    return [line for line in first if all(line in other for other in others)]


def _verdict(analysis: Analysis, rule: Rule, contrast: Contrast, wider: Analysis | None) -> Verdict:
    """Return the verdict on a contrast. `wider` is the analysis with lack of fit in its errors."""
    evidence = gather(analysis, contrast)
    row, word = rule.decide(evidence), word_of(evidence)
    more = needed(analysis, contrast, row, word)
    said = said_by(analysis.study, row, contrast.arm, contrast.metric)
    says = contrast.decided
    action = _action(analysis, contrast, row)
    return Verdict(
        arm=contrast.arm,
        reference=contrast.reference,
        metric=contrast.metric,
        label=contrast.declared.label,
        word=word,
        cost=_cost(analysis, contrast.arm) if word == "BETTER" else "",
        **stated(says),
        p=contrast.p,
        adjusted_p=contrast.tested_p,
        p_over_studies=_over_studies(analysis, contrast),
        target=contrast.target,
        text_error=contrast.other_text.error if contrast.other_text else None,
        margin=contrast.margin,
        action=action,
        rule=analysis.study.decision.rule,
        row=row.id,
        outcome=row.outcome,
        reason=_reason(analysis, row, contrast, evidence, more),
        supports=tuple(name for name, says in said.items() if says),
        contradicts=tuple(name for name, says in said.items() if not says),
        evidence=evidence,
        answer=_answer(analysis, word, row, contrast, evidence, more),
        pairs_needed=more.pairs,
        pairs_why_not=more.why_not,
        needs=_needs(analysis.study, more),
        cautions=(
            *_cautions(analysis, contrast, evidence),
            *(_of_fit(wider, contrast, word) if wider and word != "INVALID" else ()),
        ),
        tie_breaks=_tie_breaks(analysis, contrast.arm),
    )


def _names(analysis: Analysis, contrast: Contrast) -> dict[str, str]:
    called = analysis.study.called
    return {"arm": called[contrast.arm], "base": called[contrast.reference]}


def _needs(study: Study, more: Needed) -> str:
    """Return `~52 seeds, or more documents`: a number, and what reduces the largest part."""
    number = f"~{more.pairs:,} {_runs(study)}" if more.pairs else ""
    return ", or ".join(filter(None, (number, more.instead)))


def _runs(study: Study) -> str:
    return "seeds" if study.is_paired else "runs an arm"


def _cost(analysis: Analysis, arm: str) -> str:
    """Return what stands beside BETTER; empty where the cost is measured, and within its limits."""
    cost, limits = cost_of(analysis, arm), analysis.study.decision
    if limits.calibration_budget is None and limits.throughput_budget is None:
        return "" if cost.throughput else "cost not measured"
    states = [of.state if of else None for of in (cost.calibration, cost.throughput)]
    if "over" in states:
        return "cost over its budget"
    if limits.throughput_budget is not None and cost.throughput is None:
        return "cost not measured"
    return "cost not shown within its budget" if "not shown" in states else ""


def _answer(
    analysis: Analysis,
    word: Word,
    row: Row,
    contrast: Contrast,
    evidence: Evidence,
    more: Needed,
) -> str:
    names = _names(analysis, contrast)
    opening = WORDS[word].opening.format(**names)
    if word == "INVALID":
        return f"{opening}: {evidence.invalid}."
    if word in ("BETTER", "WORSE") and rests_on_events(evidence):
        opening += " by stability"
    parts = [f"{opening} {at_rates(analysis.study, contrast.arm, contrast.reference)}".rstrip()]
    parts += [effect_in_words(contrast)] if contrast.decided else [contrast.why_not]
    parts += [events] if (events := events_in_words(analysis, contrast.arm)) else []
    parts += _benefit(analysis, contrast.arm)
    parts += [
        f"Significantly worse on another primary endpoint: {_lowered(effect_in_words(other))}"
        for other in worse_elsewhere(analysis, contrast)
    ]
    action = _action(analysis, contrast, row)
    parts.append(
        f"{action[0].upper()}{action[1:]}: {_reason(analysis, row, contrast, evidence, more)}"
    )
    if more.pairs is not None:
        runs = "seed pairs" if analysis.study.is_paired else "runs of each arm"
        parts.append(_way_out(row, contrast, more, f"{more.pairs:,} {runs}"))
    if more.why_not:
        parts.append(f"No number of seeds is given: {more.why_not}")
    elif more.instead:
        parts.append(f"The largest part of the error needs {more.instead}")
    return " ".join(f"{part}." for part in parts)


def _action(analysis: Analysis, contrast: Contrast, row: Row) -> str:
    """Return what the rule says to do; of an adopted arm also what gets worse by it."""
    action = OUTCOMES[row.outcome].action.format(**_names(analysis, contrast))
    losses = losses_in_words(analysis, contrast) if row.outcome == "ADOPT" else ""
    return f"{action}, although it is worse in {losses}" if losses else action


def losses_in_words(analysis: Analysis, contrast: Contrast) -> str:
    """Return `accuracy (-0.100 [-0.123, -0.077], p <0.001)`: all losses on other endpoints."""
    return " and ".join(
        f"{other.declared.label} ({_loss_in_words(analysis, other)})"
        for other in losses_elsewhere(analysis, contrast)
    )


def _loss_in_words(analysis: Analysis, contrast: Contrast) -> str:
    """Return a significant change with its p, or in how many runs a score is missing."""
    if quality_shown(contrast, analysis.study.inference.alpha) == "Q-":
        return f"{change_in_words(contrast)}, p {numbers.p_value(contrast.tested_p)}"
    (ours, n_ours), (theirs, n_theirs) = (
        without_score(analysis, arm, contrast.metric) for arm in (contrast.arm, contrast.reference)
    )
    return f"no finite score in {ours} of {n_ours} runs against {theirs} of {n_theirs}"


def _reason(
    analysis: Analysis, row: Row, contrast: Contrast, evidence: Evidence, more: Needed
) -> str:
    """Say why this row fired. More seeds are not the answer if quality could not be tested, if
    diverged runs change it, or if no number of seeds is known to resolve it."""
    told = row.reason or row.when
    if evidence.total_cure and row.outcome == "INCONCLUSIVE" and evidence.state.fix == "unshown":
        return (
            "the baseline diverges in every seed and the arm in none, which so few seeds describe "
            "and cannot test"
        )
    if row.open not in EFFECTS:
        return told
    if _fails_counting(analysis, contrast, evidence):
        return "the result does not hold with diverged runs counted at the worst finite score"
    censored = "some trials never reached the target" if any(contrast.censored) else ""
    if row.open == "quality" and more.pairs is None and more.why_not:
        told = "a difference is neither shown nor excluded"
    return _untested(analysis, contrast) or censored or told


def _fails_counting(analysis: Analysis, contrast: Contrast, evidence: Evidence) -> bool:
    """Return whether quality is shown among the runs that survived, and not with diverged runs
    counted at the worst finite score."""
    shown = quality_shown(contrast, analysis.study.inference.alpha)
    return shown != "Q?" and evidence.state.quality == "Q?"


def _untested(analysis: Analysis, contrast: Contrast) -> str:
    """Say why quality has no test; empty where it has one."""
    says = contrast.decided
    if says is None:
        return f"quality cannot be compared ({contrast.why_not})"
    if says.descriptive_only:
        pairs = "pair" if says.n == 1 else "pairs"
        if both := contrast.unpaired:
            is_arm = both.n_treatment <= both.n_baseline
            arm = analysis.study.called[contrast.arm if is_arm else contrast.reference]
            return f"{arm} has only {says.n} comparable runs: quality is described, not tested"
        return f"only {says.n} comparable seed {pairs}: quality is described, not tested"
    return ""


def _way_out(row: Row, contrast: Contrast, more: Needed, needed: str) -> str:
    """Say how many pairs or runs, `18 seed pairs`, would resolve an inconclusive verdict."""
    if more.shows_cure:
        return f"At these rates of events, about {needed} would show a cure"
    if row.open == "not worse":
        return f"About {needed} would exclude a loss of the margin's size"
    if not contrast.margin:
        return f"About {needed} would detect the smallest effect worth detecting"
    return f"About {needed} would detect or exclude a change of the margin's size"


def _benefit(analysis: Analysis, arm: str) -> list[str]:
    """State the effect on the registered benefit, where there is one."""
    contrast = benefit_of(analysis, arm)
    if contrast is None:
        return []
    if contrast.decided is None:
        return [f"The registered benefit, {contrast.declared.label}: {contrast.why_not}"]
    least, metric = analysis.study.decision.least_benefit, contrast.declared
    wanted = f", at least {metric.stated_text(least)}" if least else ""
    if least and metric.scale == "linear" and not metric.is_share and metric.unit not in ("", "1"):
        wanted += f" {metric.unit}"
    return [f"Of the registered benefit{wanted}: {_lowered(effect_in_words(contrast))}"]


def _lowered(text: str) -> str:
    """Begin with a small letter, to go on in a sentence."""
    return text[:1].lower() + text[1:]


def change_in_words(contrast: Contrast) -> str:
    """Return a change with its interval, `-0.0321 [-0.0410, -0.0233]`, or that it is none."""
    says, digits = contrast.decided, contrast.declared.change_digits
    if says is None:
        return contrast.why_not
    if not says.has_interval:
        return contrast.declared.change_text(says.mean)
    low, high = says.interval.low, says.interval.high
    if low <= 0 <= high:
        is_nothing = max(abs(low), abs(high)) < 0.5 * 10.0**-digits
        return IDENTICAL if is_nothing else contrast.declared.delta_text(says.mean, low, high)
    # A change that is none is not shown as +0, such as a quarter of a step.
    while abs(says.mean) < 0.5 * 10.0**-digits and digits < MOST_DIGITS:
        digits += 1
    more = digits - contrast.declared.change_digits
    return contrast.declared.delta_text(
        says.mean, low, high, contrast.declared.shown_change_digits + more
    )


def effect_in_words(contrast: Contrast) -> str:
    """State an effect with its interval, losses and what is compared as ratios as these too."""
    metric, says = contrast.declared, contrast.decided
    assert says is not None
    interval = says.interval
    text = f"{metric.label} changes by {change_in_words(contrast)}"
    text += f" {metric.change_unit}" if metric.change_unit and not text.endswith(IDENTICAL) else ""
    if metric.ratio:
        text += f", {metric.ratio} of {numbers.ratio(says.mean, 3)}"
        if says.has_interval:
            text += f" {numbers.ratio_interval(interval.low, interval.high, 3)}"
    both = contrast.unpaired
    text += f", n = {both.n_treatment} and {both.n_baseline}" if both else f", n = {says.n}"
    if contrast.items_about:
        text += f" seeds and {contrast.items_about}"
    if contrast.sampling and contrast.sampling.in_words:
        text += f" ({contrast.sampling.in_words})"
    if contrast.tested:
        if says.family > 1:  # the interval inverts this one
            text += f", p {numbers.p_equals(contrast.p)}"
        text += f", Holm p {numbers.p_equals(contrast.tested_p)}"
    return text[0].upper() + text[1:]


def events_in_words(analysis: Analysis, arm: str) -> str:
    """Say `Diverged or spiked in 5 of 5 seeds against 0 of 5 (Holm p = 0.06)`; empty where no trial
    did."""
    stability = analysis.stability(arm)
    if stability is None:
        return ""
    told = []
    kinds = {"diverged": stability.diverged}
    if any(events.has_losses for events in analysis.events.values()):  # spikes are counted
        kinds["diverged or spiked"] = stability.any_event
    for name, rates in kinds.items():
        ours, theirs = rates.treatment_events, rates.baseline_events
        seeds = "seeds" if analysis.study.is_paired else "runs"
        of = f"{rates.n_treatment} {seeds} against {theirs} of {rates.n_baseline}"
        told.append(f"{name} in {ours} of {of}")
        if ours + theirs == 0:
            told.pop()
    if not told:
        return ""
    p = stability.holm_p
    tested = "too few pairs to test" if p is None else f"Holm p {numbers.p_equals(p)}"
    return f"It {' and '.join(told)} ({tested})"


def _tie_breaks(analysis: Analysis, arm: str) -> tuple[str, ...]:
    """State what breaks a tie, in the user's order: calibration, then throughput."""
    cost = cost_of(analysis, arm)
    calibration = "not compared"
    if cost.calibration is not None:
        low, high = cost.calibration.interval.low, cost.calibration.interval.high
        rise = numbers.delta(cost.calibration.mean, low, high, 4)
        calibration = f"{rise} expected calibration error{BUDGETS[cost.calibration.state]}"
    how = "measured in turn" if cost.in_turn else "as timed while training"
    kinds = {
        f"training ({how})": cost.throughput,
        "reading": cost.prefill,
        "writing": cost.decoding,
    }
    gains = [f"{kind} {_gain(lost)}" for kind, lost in kinds.items() if lost]
    counted = analysis.study.arm_facts(arm).tokens is not None
    speed = f"{'bytes' if cost.in_bytes else 'tokens'} per second" if counted else "speed"
    throughput = f"{speed}: {', '.join(gains)}" if gains else "throughput: not compared"
    return (f"calibration: {calibration}", throughput)


def _gain(lost: Cost) -> str:
    low, high = lost.interval.low, lost.interval.high
    gain = numbers.delta(-100 * lost.mean, -100 * high, -100 * low, 1)
    return f"{gain} per cent{BUDGETS[lost.state]}"


def _cautions(analysis: Analysis, contrast: Contrast, evidence: Evidence) -> list[Caution]:
    """State what qualifies a verdict; of one that is not judged, what holds all the same."""
    is_judged, late = not evidence.invalid, ", ".join(map(str, analysis.late_seeds))
    found: dict[str, list[str]] = {}
    found["edited"] = _edited(analysis)
    found["all_diverged"] = _all_diverged(analysis, contrast)
    found["excluded"] = _excluded(analysis, contrast)
    if is_judged:
        found["diverged"] = _counting_diverged(analysis, contrast, evidence)
    if analysis.runs:
        found["described"] = _described(analysis, contrast, evidence)
        if analysis.runs.notes or analysis.runs.refused or analysis.runs.copies:
            found["runs"] = []  # what is odd about them comes first
        if is_judged:
            found["one_seed"] = []
        found["no_partner"] = _no_partner(analysis, contrast)
        found["exploratory"] = _exploratory(analysis.runs)
        found["pairs_assumed"] = _assumed(analysis.study)
        found["runs"] = _of_runs(analysis.runs)
    found["uncommitted"] = [
        f"Of uncommitted changes the digest alone is recorded: {control.detail}."
        for control in uncommitted(analysis)
        if control.arm == contrast.arm
    ]
    if late:
        found["late_seeds"] = [
            f"Seeds added after results had been seen ({late}): no error rate is guaranteed."
        ]
    if analysis.later_stage:
        found["first_stage"] = [
            f"This is of the first stage alone: the second does not count, as "
            f"{analysis.later_stage}."
        ]
    found["not_proven"] = [
        f"{NOT_PROVEN[control.name]}: {control.detail}."
        for control in analysis.controls
        if (control.arm, control.state) == (contrast.arm, "not proven")
        and control.name in NOT_PROVEN
        and not (control.detail.startswith("not recorded") and AGAINST not in control.detail)
    ]
    if is_judged:
        found["unequal_size"] = _unequal_size(analysis, contrast)
        found["reused"] = _reused(analysis, contrast)
        found["never_reached"] = _never_reached(analysis, contrast)
        found["one_seed"] = _one_seed(analysis, contrast)
        found["skewed"] = _skewed(analysis, contrast)
        found["resolution"] = _at_the_resolution(contrast.decided)
        found["tests_disagree"] = _disagreements(analysis, contrast)
        at = at_rates(analysis.study, contrast.arm, contrast.reference)
        only = "Holds only" if contrast.decided else "Trained"
        found["not_tuned"] = [f"{only} {at}."] if "not tuned" in at else []
        found["tuning"] = _of_tuning(analysis, analysis.tuned, contrast) if analysis.tuned else []
        found["choice"] = _of_choice(analysis.study, contrast)
        found["these_items"] = fixed_items(contrast)
        found["other_text"] = _other_text(analysis, contrast)
        found["could_miss"] = missed(analysis, contrast)
    if contrast.sampling and contrast.sampling.stage_seeds is not None:
        found["two_stages"] = [extension_in_words(analysis.study)]
    if is_judged and analysis.text and _is_of_text(contrast):
        found["text"] = [analysis.text]
    return [Caution(code, text) for code, texts in found.items() for text in texts]


def _counting_diverged(analysis: Analysis, contrast: Contrast, evidence: Evidence) -> list[str]:
    """State the change with diverged runs counted, if quality is shown without them."""
    counted, alpha = contrast.counting_diverged, analysis.study.inference.alpha
    stability = analysis.stability(contrast.arm)
    if counted is None or stability is None or rests_on_events(evidence):
        return []
    if quality_shown(contrast, alpha) == "Q?":
        return []
    rates, names = stability.diverged, _names(analysis, contrast)
    holds = "does not hold" if _fails_counting(analysis, contrast, evidence) else "holds"
    return [
        f"{rates.treatment_events} of {rates.n_treatment} runs of {names['arm']} and "
        f"{rates.baseline_events} of {rates.n_baseline} of {names['base']} diverged, and are not "
        "in the change. Counted at the worst finite score it is "
        f"{change_in_words(counted)}, Holm p {numbers.p_equals(counted.tested_p)}: the result "
        f"{holds}."
    ]


def _edited(analysis: Analysis) -> list[str]:
    """Say which texts were edited after registration, or are lost from it."""
    if not analysis.edited:
        return []
    keys = numbers.some(list(analysis.edited), SEEDS_TOLD)
    return [f"Edited after registration, and shown as registered where that is kept: {keys}."]


def _all_diverged(analysis: Analysis, contrast: Contrast) -> list[str]:
    """Say that no trial of an arm, or of what it is compared with, can be compared."""
    pair = (contrast.reference, contrast.arm)
    return [
        f"Every trial of {analysis.study.called[arm]} diverged"
        + (" or failed." if arm in analysis.excluded else ".")
        for arm in pair
        if analysis.all_diverged(arm)
    ]


def size_in_words(analysis: Analysis, arm: str) -> str:
    """Return `66% more parameters, 57% more training FLOPs`: how much larger an arm is than its
    reference; empty where it is as large but for a few per cent."""
    cost = cost_of(analysis, arm)
    shares = {"parameters": cost.more_parameters, "training FLOPs": cost.more_flops}
    return ", ".join(
        f"{abs(share):.0%} {'more' if share > 0 else 'fewer'} {what}"
        for what, share in shares.items()
        if share is not None and abs(share) >= UNEQUAL
    )


def _unequal_size(analysis: Analysis, contrast: Contrast) -> list[str]:
    """Say that the arm and its reference are not compared at equal cost."""
    size = size_in_words(analysis, contrast.arm)
    arm, base = _names(analysis, contrast).values()
    return [f"Not at equal cost: {arm} has {size} than {base}."] if size else []


def _described(analysis: Analysis, contrast: Contrast, evidence: Evidence) -> list[str]:
    """Say first that so few runs are described, and how they differ where no interval can be."""
    if evidence.n >= DESCRIPTIVE_BELOW:
        return []
    ours, theirs = (
        list(analysis.summary(arm, contrast.metric).values.values())
        for arm in (contrast.arm, contrast.reference)
    )
    n_ours, n_theirs = (
        len(values) + analysis.n_diverged(name, contrast.metric)
        for name, values in ((contrast.arm, ours), (contrast.reference, theirs))
    )
    arm, base = _names(analysis, contrast).values()
    told = f"{arm} has {numbers.plural(n_ours, 'run')} and {base} {n_theirs}"
    few = f"fewer than {DESCRIPTIVE_BELOW}"
    if analysis.study.is_paired:
        told += f", which make {numbers.plural(evidence.n, 'pair')}"
        few += " pairs"
    told += f": {few} are described, and not tested."
    if contrast.decided is None and ours and theirs:
        change, digits = math.fsum(ours) / len(ours) - math.fsum(theirs) / len(theirs), 4
        told += (
            f" The means differ by {numbers.signed(change, max(digits, contrast.declared.digits))}."
        )
    return [told]


def _exploratory(runs: RunsRecord) -> list[str]:
    return [f"Exploratory: {runs.exploratory}."] if runs.exploratory else []


def _assumed(study: Study) -> list[str]:
    """Say what pairs of runs that other programs made rest on."""
    if not study.is_paired:
        return []
    seed = (study.model_extra or {}).get("runs", {}).get("seed", "seed")
    return [f"That runs of one {seed} share data and initial values is assumed, and not recorded."]


def _no_partner(analysis: Analysis, contrast: Contrast) -> list[str]:
    """Say how many pairs are compared, where some runs are of seeds that the other arm has not."""
    study = analysis.study
    if not study.is_paired:
        return []
    there = {arm: analysis.seeds_of(arm) for arm in (contrast.arm, contrast.reference)}
    alone = {arm: sorted(mine - set.intersection(*there.values())) for arm, mine in there.items()}
    counts = []
    for arm, seeds in alone.items():
        shown = ", ".join(map(str, seeds[:SEEDS_TOLD])) + (
            " ..." if len(seeds) > SEEDS_TOLD else ""
        )
        if diverged := sum(analysis.events[arm, seed].diverged for seed in seeds):
            shown += f"; {diverged} diverged"
        if seeds:
            runs = numbers.plural(len(there[arm]), "run")
            counts.append(f"{len(seeds)} of {runs} of {study.called[arm]} ({shown})")
    if not counts:
        return []
    pairs = numbers.plural(len(contrast.seeds), "pair")
    return [f"{pairs} compared; left out as no run has their seed: {' and '.join(counts)}."]


def no_partner_in_words(analysis: Analysis) -> str:
    """Return `10 without a partner left out`: how many runs are in no pair, as the other arms have
    no run of their seed; empty for none, and where runs are no pairs."""
    if not (analysis.runs and analysis.study.is_paired):
        return ""
    contrasts = analysis.study.contrasts
    paired = {
        (arm, seed)
        for pair in contrasts
        for seed in set.intersection(*map(analysis.seeds_of, pair))
        for arm in pair
    }
    alone = len(analysis.events.keys() - paired)
    return f"{alone} without a partner left out" if alone else ""


def _of_runs(runs: RunsRecord) -> list[str]:
    """Say which runs are not among those that are judged, and what is odd about the others."""
    found = []
    if runs.refused:
        found.append(_left_out(runs, "could not be read", runs.refused))
    found += runs.notes
    if runs.copies:
        such = ": " if runs.copies == 1 else ", such as "
        copy = such + " and ".join(runs.copy_of) if runs.copy_of else ""
        n = numbers.plural(runs.copies, "run")
        found.append(f"{n} counted once, as another has equal values{copy}.")
    if runs.skipped:
        found.append(_left_out(runs, "are of no known form", runs.skipped))
    return found


def _left_out(runs: RunsRecord, what: str, files: Sequence[Sequence[str]]) -> str:
    path, why = files[0]
    of = f"{len(files)} of {numbers.plural(runs.files, 'file')}"
    said = why.removeprefix(path).lstrip(":, ").rstrip(".")
    return f"{of} {what}, such as {path}: {said}" + ("" if said.endswith("?") else ".")


def uncommitted(analysis: Analysis) -> list[Control]:
    """Return the controls that tell of changes that were in no commit when a program ran."""
    return [one for one in analysis.controls if one.name == "source" and UNCOMMITTED in one.detail]


def _excluded(analysis: Analysis, contrast: Contrast) -> list[str]:
    """Say how many runs the study leaves out as failed, of each arm; and where it is not the same
    share of both, that this may be an effect."""
    of = {
        arm: (analysis.excluded.get(arm, 0), len(analysis.seeds_of(arm)))
        for arm in (contrast.arm, contrast.reference)
    }
    shares = {failed / max(failed + others, 1) for failed, others in of.values()}
    if len(shares) > 1:
        (arm, (a, b)), (base, (c, d)) = of.items()
        named = analysis.study.called
        return [
            f"Failed and left out: {a} of {numbers.plural(a + b, 'run')} of {named[arm]}, {c} of "
            f"{c + d} of {named[base]}. If the arm makes runs fail, those compared do not show it."
        ]
    told = excluded_in_words(analysis)
    return [f"{told[0].upper()}{told[1:]}."] if told else []


def excluded_in_words(analysis: Analysis) -> str:
    """Return `failed runs left out: 2 of new`; empty for none."""
    counts = ", ".join(f"{n} of {arm}" for arm, n in analysis.excluded.items())
    return f"failed runs left out: {counts}" if counts else ""


def _is_of_text(contrast: Contrast) -> bool:
    return contrast.metric.partition("/")[0] not in TASKS


def _over_studies(analysis: Analysis, contrast: Contrast) -> float | None:
    reuse, p = analysis.reuse, contrast.tested_p
    if reuse is None or not reuse.recorded or p is None or not _is_of_text(contrast):
        return None
    return min(1.0, reuse.studies * p)


def _reused(analysis: Analysis, contrast: Contrast) -> list[str]:
    """Say that other studies had opened the test text, and how many tests are made on it."""
    reuse = analysis.reuse
    if reuse is None or reuse.first is None or not _is_of_text(contrast):
        return []
    first = f"'{reuse.first.study}' on {reuse.first.time[:10]}"
    validated = numbers.plural(reuse.validated, "study", "studies")
    if reuse.opened_for > 1:
        told = f"Test text opened for the {numbers.ordinal(reuse.opened_for)} study"
        told += f", after {validated} that validated on it" if reuse.validated else ""
        told += f"; the first was {first}."
    else:
        told = f"Test text was the validation text of {validated} before; the first was {first}."
    tests = numbers.plural(reuse.tests, "primary test")
    return [f"{told} {tests} on it in all; p_over_studies in verdict.json bounds them."]


def _one_seed(analysis: Analysis, contrast: Contrast) -> list[str]:
    """Name the seed that carries most of the spread of the differences, or of runs that are no
    pairs the run that is far from the others of its arm: Grubbs' test at 1%."""
    if contrast.unpaired:
        return _one_run(analysis, contrast)
    pairs = contrast.paired.pairs if contrast.paired else ()
    n = len(pairs)
    if n < DESCRIPTIVE_BELOW or contrast.declared.scale != "linear":
        return []
    place = outlier([pair.delta for pair in pairs])
    if place is None:
        return []
    told = []
    arm, base = _names(analysis, contrast).values()
    for name, values in (
        (arm, [pair.treatment for pair in pairs]),
        (base, [pair.baseline for pair in pairs]),
    ):
        others = sorted(values[:place] + values[place + 1 :])
        beyond = max(others[0] - values[place], values[place] - others[-1])
        told.append((beyond, name, values[place], others[0], others[-1]))
    _, arm, here, low, high = max(told)
    shown = [contrast.declared.value_text(value) for value in (here, low, high)]
    return [
        f"Seed {contrast.seeds[place]} carries most of the spread: {arm} has {shown[0]} there, and "
        f"{_span(shown[1], shown[2])} at the other seeds."
    ]


def _span(low: str, high: str) -> str:
    """Return `3.0 to 3.1`, or a single value if both are shown alike."""
    return low if low == high else f"{low} to {high}"


def _one_run(analysis: Analysis, contrast: Contrast) -> list[str]:
    told = []
    for arm in (contrast.arm, contrast.reference):
        values = list(analysis.summary(arm, contrast.metric).values.values())
        place = outlier(values) if len(values) >= DESCRIPTIVE_BELOW else None
        if place is not None:
            others = sorted(values[:place] + values[place + 1 :])
            here, *ends = map(contrast.declared.value_text, (values[place], others[0], others[-1]))
            called = analysis.study.called[arm]
            told.append(f"One run of {called} has {here}, the others {_span(*ends)}.")
    return told


def _at_the_resolution(says: Decided | None) -> list[str]:
    """Say that all differences are equal, and so that the p is the least there is."""
    if says is None or not says.constant or says.mean == 0:
        return []
    equal = f"All {says.n} differences are equal"
    if says.test == WELCH:
        equal = "All runs of each arm are equal"
    if says.test in CROSSED:
        equal = "Every item differs by the same amount at every seed"
    return [
        f"{equal}: this is an effect at the resolution of the measurement, and its p the least "
        "that this resolution allows."
    ]


def _skewed(analysis: Analysis, contrast: Contrast) -> list[str]:
    """Warn of an effect found at a look if its differences are skewed: boundaries are of normal
    ones."""
    is_look = contrast.sampling is not None and contrast.sampling.look
    if not is_look or contrast.paired is None:
        return []
    if not contrast.significant(analysis.study.inference.alpha):
        return []
    skew, error = skewness([pair.delta for pair in contrast.paired.pairs])
    if abs(skew) <= SKEWED * error:
        return []
    return [
        f"The differences are skewed (skewness {numbers.signed(skew, 1)}), and the boundaries of "
        "looks are of normal ones: with strong skew an effect is claimed more often than at the "
        "registered level."
    ]


def _of_choice(study: Study, contrast: Contrast) -> list[str]:
    """Say that the error does not include the choice of tuned values, and how large that is; or
    that it includes the choice without a parabola."""
    choice, share = contrast.choice, contrast.choice_share
    if choice is None or study.tuning is None or (choice.included and choice.how == "vertex"):
        return []
    what = " and ".join(key.rpartition(".")[2].replace("_", " ") for key in study.tuning.keys)
    if choice.included:
        return [
            f"Each arm has the best {what} tried, because no parabola could be fitted. The error "
            "of this choice is from redrawn tuning seeds, which can be too small."
        ]
    if share is None:
        return [f"The error does not include the choice of {what}: {choice.why_not}."]
    wider = 1 / math.sqrt(1 - share) if share < 1 else math.inf
    return [
        f"The interval leaves out the uncertainty of the chosen {what}; with it, from redrawn "
        f"tuning seeds, it would be {wider:.2f} times as wide."
    ]


def _of_fit(wider: Analysis, registered: Contrast, word: Word) -> list[Caution]:
    """Say that the word would be another with the lack of fit of parabolas in the error."""
    contrast = wider.contrast(registered.arm, registered.metric)
    says, other = contrast.decided, word_of(gather(wider, contrast))
    if says is None or other == word:
        return []
    ends = contrast.declared.span_text(says.interval.low, says.interval.high)
    text = (
        "The registered error leaves out that the tuning curve is not a parabola. With this lack "
        f"of fit the {numbers.level(1 - says.interval.level)} interval is {ends}, and the word "
        f"would be {other}."
    )
    return [Caution(LACK_OF_FIT, text)]


def _of_tuning(analysis: Analysis, tuned: Tuned, contrast: Contrast) -> list[str]:
    """State what depends on the tuning: the change at shared values first."""
    pair, called = (contrast.arm, contrast.reference), analysis.study.called
    found = []
    if between := tuned.between(contrast.arm, called):
        found.append(f"{between[0].upper()}{between[1:]}.")
    why = tuned.why_values_differ(*pair, analysis.study.inference.alpha, called)
    if why and not contrast.choice_error:
        found.append(f"{why}.")
    left_open = tuned.left_open((contrast.reference, contrast.arm), called)
    return found + [f"Tuning {line}." for line in left_open]


def missed(analysis: Analysis, contrast: Contrast) -> list[str]:
    """Say that an effect worth detecting could have been missed, where none was found."""
    says, alpha = contrast.decided, analysis.study.inference.alpha
    if says is None or not contrast.could_miss or contrast.significant(alpha):
        return []
    metric, power = contrast.declared, analysis.study.inference.power
    return [
        f"With {power:.0%} power this study detects a change of "
        f"{metric.size_text(says.detectable)}; the registered smallest effect worth detecting is "
        f"{metric.size_text(contrast.smallest_effect)}, and can have been missed."
    ]


def _never_reached(analysis: Analysis, contrast: Contrast) -> list[str]:
    """Say that trials did not come to the target, and so what cannot be shown."""
    if not any(contrast.censored):
        return []
    ours, theirs = contrast.censored
    arm, base = _names(analysis, contrast).values()
    return [
        f"Within the smaller budget of each pair, {arm} did not reach the target in "
        f"{ours} of {len(contrast.seeds)} seeds, and {base} in {theirs}: what these "
        "trials needed is at least that budget, so that no equality can be shown."
    ]


def fixed_items(contrast: Contrast) -> list[str]:
    """Say that a claim registered about new items had to be judged on these alone, and by what."""
    says = contrast.decided
    if not contrast.items_why_not or says is None:
        return []
    return [
        f"Items cannot be paired, as {contrast.items_why_not}: the {TESTS[says.test]} on seed "
        f"means decides, and the claim is about {contrast.target}, not about new items as "
        "registered."
    ]


def _other_text(analysis: Analysis, contrast: Contrast) -> list[str]:
    """Say that other text may not show what was found on this text: a difference, or that it is
    too small to matter."""
    says, alpha = contrast.decided, analysis.study.inference.alpha
    if says is None or contrast.other_text is None or not contrast.tested:
        return []
    if contrast.other_text.error is None:
        about = contrast.other_text.about
        return [f"Measured on {about} of one text: too few to say what other text would show."]
    is_same = contrast.equivalent(alpha)
    wider = contrast.on_other_text(says.equivalence_interval if is_same else says.interval)
    if wider is None or not (is_same or contrast.significant(alpha)):
        return []
    if wider.inside(contrast.margin or 0) if is_same else 0 not in wider:
        return []
    level = numbers.level(1 - wider.level)
    ends = contrast.declared.span_text(wider.low, wider.high)
    return [
        f"Other text may not show this: with the error of {contrast.other_text.about} in it, the "
        f"{level} interval would be about {ends}."
    ]


def _disagreements(analysis: Analysis, contrast: Contrast) -> list[str]:
    """Say once that sensitivity analyses find what the deciding test does not, or the reverse; not
    of a change too small to matter, whose word rests on none of these tests of a difference."""
    says = contrast.decided
    others = [check for check in contrast.checks if check.disagrees]
    if says is None or not contrast.tested or not others:
        return []
    if contrast.equivalent(analysis.study.inference.alpha):
        return []
    told = " and ".join(f"{one.test} (Holm p {numbers.p_equals(one.holm_p)})" for one in others)
    return [
        f"Other tests disagree: {told}. The registered one decides, the {TESTS[says.test]} "
        f"({numbers.p_value(contrast.tested_p)}); they show how much hangs on the choice of test."
    ]
