"""Cautions: warnings about a verdict. `cautions.toml` has their codes, severities and sentences.

A condition is a generator of values for a sentence, empty if the caution does not apply. The card
shows only the most severe caution of a study; the page and `--verbose` show all.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from paribus import numbers
from paribus.analysis import Analysis, Contrast
from paribus.analysis.contrasts import with_lack_of_fit
from paribus.decision import Depends, Verdict, Verdicts, find_rule, unreachable, word_of
from paribus.decision.evidence import gather, quality_shown
from paribus.decision.reach import least_events_p
from paribus.decision.verdict import is_of_text
from paribus.errors import one_line
from paribus.report.cells import TESTS, change_text, key_text, tuning_texts
from paribus.report.sentences import filled, join, sentence
from paribus.results.records import RunsRecord
from paribus.statistics import DESCRIPTIVE_BELOW, skewness
from paribus.study import Candidate, Study, values_text

MOST_NAMED = 3  # arms or settings in a caution
# Findings about finished runs that come after the others.
MINOR = ("file", "resumed")
# Findings that the card states below its rows.
READING = ("where", "best_of", "arms_differ", "horizon", "may_pair")
LISTS = re.compile(r" \((?:[^(),]*,){5}[^()]*\)")  # of all formats, in the reason of a file
SKEWED = 1.96  # standard errors; one in 20 samples of normal differences is beyond


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


Values = Iterator[dict[str, Any]]


def _always(c: Context) -> Values:
    """Yield the context, for sentences whose template has the condition."""
    yield {"c": c, "runs": c.analysis.runs}


def _excluded(c: Context) -> Values:
    failed = {arm: c.analysis.excluded.get(arm, 0) for arm in c.pair}
    runs = {arm: n + len(c.analysis.seeds_of(arm)) for arm, n in failed.items()}
    if any(failed.values()):
        shares = {n / max(runs[arm], 1) for arm, n in failed.items()}
        counts = [(n, runs[arm], c.called[arm]) for arm, n in failed.items()]
        yield {"counts": counts, "is_equal": len(shares) == 1}


def _two_stages(c: Context) -> Values:
    if c.contrast.sampling and c.contrast.sampling.stage_seeds is not None:
        yield {"text": extension_text(c.analysis.study)}


def _unequal(c: Context) -> Values:
    if c.analysis.runs:
        codes = (*READING, *MINOR)
        yield from ({"text": text} for code, text in c.analysis.runs.notes if code not in codes)


def _refused(c: Context) -> Values:
    if c.analysis.runs and c.analysis.runs.refused:
        yield _files(c, c.analysis.runs.refused)


def _diverged(c: Context) -> Values:
    counted, stability = c.contrast.counting_diverged, c.analysis.stability(c.contrast.arm)
    if counted is None or stability is None or c.verdict.evidence.state.fix != "unshown":
        return
    if quality_shown(c.contrast, c.alpha) != "Q?":
        yield {
            "rates": stability.diverged,
            "arm": c.arm,
            "base": c.base,
            "change": change_text(counted),
            "p": counted.holm_p,
            "holds": c.verdict.evidence.state.quality != "Q?",
        }


def _notes(c: Context) -> Values:
    notes = c.analysis.runs.notes if c.analysis.runs else []
    yield from ({"text": text} for code, text in notes if code in MINOR)


def _copies(c: Context) -> Values:
    if c.analysis.runs and c.analysis.runs.copies:
        yield {"copies": c.analysis.runs.copies, "example": c.analysis.runs.copy_of}


def _skipped(c: Context) -> Values:
    if c.analysis.runs and c.analysis.runs.skipped:
        yield _files(c, c.analysis.runs.skipped)


def _files(c: Context, files: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return a file caution's values: the number of files, and the first one with its reason."""
    path, why = files[0]
    reason = LISTS.sub("", why.removeprefix(path).lstrip(":, ").rstrip(".?"))
    total = c.analysis.runs.files if c.analysis.runs else 0
    return {"n": len(files), "total": total, "path": path, "reason": reason}


def _not_proven(c: Context) -> Values:
    for control in c.analysis.controls:
        unknown = control.detail.startswith("not recorded") and " against " not in control.detail
        is_of_arm = (control.arm, control.state) == (c.contrast.arm, "not proven")
        if is_of_arm and not unknown:
            yield {"control": control.name, "detail": control.detail}


def _lack_of_fit(c: Context) -> Values:
    contrast = c.wider.contrast(c.contrast.arm, c.contrast.metric)
    says, word = contrast.decided, word_of(gather(c.wider, contrast))
    if says is not None and word != c.verdict.word:
        span = contrast.declared.span_text(says.interval.low, says.interval.high)
        level = numbers.level(c.wider.study.inference.alpha)
        yield {"level": level, "interval": span, "word": word}


def _tuning(c: Context) -> Values:
    for arm in c.pair[::-1]:
        texts = tuning_texts(c.analysis.tuned, arm) if c.analysis.tuned else []
        yield from ({"arm": c.called[arm], "text": text} for text in texts)


def _rates(c: Context) -> Values:
    if (tuned := c.analysis.tuned) is None:
        return
    changes = {}
    for arm, reference in c.analysis.study.contrasts:  # one sentence for all arms
        extremes = tuned.extremes(arm, reference)
        if extremes and extremes[0][1] < 0 < extremes[1][1]:
            ends = [(tuned.metric.change_text(change), _values(at)) for at, change in extremes]
            changes[arm] = (c.called[arm], *ends)
    if c.contrast.arm in changes:
        keys = list(map(key_text, tuned.candidates[0]))
        shared = keys[0] if len(keys) == 1 else "setting"
        yield {"key": shared, "arms": list(changes.values())[:MOST_NAMED], "n": len(changes)}


def _values(candidate: Candidate) -> str:
    """Format a candidate's values, without the key if there is only one."""
    text = values_text(candidate)
    return text.partition(" ")[2] if len(candidate) == 1 else text


def _choice(c: Context) -> Values:
    choice, tuning = c.contrast.choice, c.analysis.study.tuning
    if choice and tuning and not (choice.included and choice.how == "vertex"):
        keys = list(map(key_text, tuning.keys))
        why = choice.why_not or "the study says that it is fixed"
        yield {"keys": keys, "why": "" if choice.included else why}


def _tests_disagree(c: Context) -> Values:
    says = c.contrast.decided
    others = [(check.test, check.holm_p) for check in c.contrast.checks if check.disagrees]
    if says and c.contrast.tested and others and not c.contrast.equivalent(c.alpha):
        yield {"others": others, "test": TESTS[says.test], "p": c.contrast.holm_p}


def _skewed(c: Context) -> Values:
    is_look = c.contrast.sampling is not None and c.contrast.sampling.look
    if not is_look or c.contrast.by_run is None or not c.contrast.significant(c.alpha):
        return
    skew, error = skewness([pair.delta for pair in c.contrast.by_run.pairs])
    if abs(skew) > SKEWED * error:
        yield {"skewness": numbers.signed(skew, 1)}


def _these_items(c: Context) -> Values:
    says = c.contrast.decided
    if c.contrast.items_why_not and says is not None:
        target = c.contrast.target or "these items"
        yield {"why": c.contrast.items_why_not, "test": TESTS[says.test], "target": target}


def may_be_small(verdict: Verdict) -> bool:
    """Return whether the change may be smaller than the margin, judging by its interval."""
    if verdict.margin is None or verdict.low is None or verdict.high is None:
        return False
    return min(abs(verdict.low), abs(verdict.high)) < verdict.margin


def _could_miss(c: Context) -> Values:
    smallest, metric = c.contrast.smallest_effect or 0.0, c.contrast.declared
    detectable: dict[str, float] = {}
    for contrast in c.analysis.contrasts:
        says = contrast.decided
        if contrast.metric != c.contrast.metric or says is None or says.descriptive_only:
            continue
        if says.detectable > smallest > 0 and not contrast.significant(c.alpha):
            detectable[contrast.arm] = says.detectable
    if c.contrast.arm in detectable:  # one sentence for all arms
        ends = map(metric.size_text, (min(detectable.values()), max(detectable.values())))
        unit = metric.change_unit if metric.is_share or metric.scale == "log" else ""
        yield {
            "power": c.analysis.study.inference.power,
            "sizes": list(dict.fromkeys(ends)),
            "unit": unit,
            "smallest": metric.stated_text(smallest),
        }


def _reused(c: Context) -> Values:
    reuse = c.analysis.reuse
    if reuse is not None and reuse.first is not None and is_of_text(c.contrast.metric):
        yield {"reuse": reuse, "date": reuse.first.time[:10]}


def _not_tuned(c: Context) -> Values:
    study, changed = c.analysis.study, c.analysis.study.differences(c.contrast.arm)
    tuned, rate = study.tuning.keys if study.tuning else (), "learning_rate"
    rates = [study.arm_facts(arm).learning_rate for arm in c.pair[::-1]]
    texts = [numbers.compact(value) for value in rates if value is not None]
    is_treatment = changed and all(rate in key for key in changed)
    if len(texts) == len(rates) and not is_treatment and not any(rate in key for key in tuned):
        yield {
            "rate": texts[1],
            "rates": [f"{c.base} {texts[0]}", f"{c.arm} {texts[1]}"],
            "of_optimizers": any("optimizer" in key for key in changed),
        }


class Kind(NamedTuple):
    """A kind of caution.

    Attributes:
        severity: from 1 to 3 (most severe).
        condition: yields values for the sentence.
        text: Jinja template of the sentence.
        judged: whether to skip contrasts whose verdict is INVALID.
    """

    code: str
    severity: int
    condition: Callable[[Context], Values]
    text: str
    judged: bool = True


_FILE = Path(__file__).with_name("cautions.toml")
CAUTIONS = tuple(
    Kind(**row | {"condition": globals()[f"_{row.get('condition', 'always')}"]})
    for row in tomllib.loads(_FILE.read_text(encoding="utf-8"))["cautions"]
)


def cautions_of_runs(runs: RunsRecord) -> list[Caution]:
    """Return the cautions about the files of finished runs, most severe first."""
    context: Any = SimpleNamespace(analysis=SimpleNamespace(runs=runs))
    conditions = (_unequal, _refused, _notes, _copies, _skipped)
    return _cautions([kind for kind in CAUTIONS if kind.condition in conditions], context)


def _cautions(kinds: Iterable[Kind], context: Context) -> list[Caution]:
    """Return the cautions of these kinds that apply, most severe first."""
    cautions = [
        # The values may quote files and their names.
        Caution(kind.code, kind.severity, one_line(text))
        for kind in kinds
        for values in kind.condition(context)
        if (text := filled(kind.text, values))
    ]
    return sorted(cautions, key=lambda caution: -caution.severity)


def all_cautions(verdicts: Verdicts) -> list[tuple[Caution, ...]]:
    """Return one tuple of cautions per verdict, most severe first."""
    each, analysis, wider = [], verdicts.analysis, with_lack_of_fit(verdicts.analysis)
    for verdict in verdicts:
        contrast = analysis.contrast(verdict.arm, verdict.metric)
        context = Context(analysis, contrast, verdict, wider)
        kinds = [kind for kind in CAUTIONS if not (kind.judged and verdict.evidence.invalid)]
        each.append(tuple(_cautions(kinds, context)))
    return each


def shown_cautions(verdicts: Verdicts, every: Sequence[tuple[Caution, ...]]) -> Iterator[Caution]:
    """Yield unique cautions, most severe first.

    A caution that applies to some of the arms or endpoints is prefixed with their titles.
    """
    analysis, called = verdicts.analysis, verdicts.analysis.study.called
    owners: dict[Caution, list[Verdict]] = {}
    for verdict, cautions in zip(verdicts, every, strict=True):
        # What an unfinished study lacks stands on its own line.
        invalid = "" if analysis.missing else invalid_text(analysis, verdict)
        for caution in (Caution("invalid", 3, invalid), *cautions):
            if caution.text:
                owners.setdefault(caution, []).append(verdict)
    order = ["invalid", *(kind.code for kind in CAUTIONS)]
    for caution in sorted(owners, key=lambda c: (-c.severity, order.index(c.code))):
        arms = list(dict.fromkeys(called[v.arm] for v in owners[caution]))
        labels = list(dict.fromkeys(v.label for v in owners[caution]))
        subjects = []
        is_of_all = len(arms) == len(analysis.study.contrasts)
        if not (is_of_all or any(arm in caution.text for arm in called.values())):
            subjects.append(join(arms, MOST_NAMED))
        if len(labels) < len(analysis.study.judged):
            subjects.append(join(labels))
        yield replace(caution, text=": ".join([", ".join(subjects), caution.text]).lstrip(": "))


def extension_text(study: Study) -> str:
    """Describe a second stage: its sample size, the combination method and the error rate."""
    first, second = study.stages
    return sentence("two_stages", first=first, second=second, alpha=study.inference.alpha)


def instead_text(analysis: Analysis, verdict: Verdict) -> str:
    """Name what would resolve a verdict apart from more seeds, such as `more questions`."""
    items = analysis.contrast(verdict.arm, verdict.metric).items_about.rpartition(" ")[2]
    return sentence("instead", code=verdict.needed.instead, items=items)


def needs_text(analysis: Analysis, verdict: Verdict) -> str:
    """Name what would resolve a verdict, such as `~36 seeds in all (31 more)`.

    If nothing would, the reason is returned, or "" if none is known.
    """
    instead = instead_text(analysis, verdict)
    return sentence("needs", needed=verdict.needed, study=analysis.study, instead=instead)


def invalid_text(analysis: Analysis, verdict: Verdict) -> str:
    """Return the reason why a verdict is INVALID, or "" if it is valid."""
    contrast = analysis.contrast(verdict.arm, verdict.metric)
    return sentence(
        "invalid",
        code=verdict.evidence.invalid,
        missing=analysis.missing_of(contrast),
        control=next(iter(analysis.broken(verdict.arm)), None),
        study=analysis.study,
        unregistered=analysis.unregistered,
        untested=analysis.untested,
    )


def why_no_interaction(verdicts: Verdicts, interaction: Depends) -> str:
    """Return the reason why an interaction cannot be judged, or "" if it can."""
    by_arm = {
        v.arm: invalid_text(verdicts.analysis, v)
        for v in verdicts
        if v.metric == interaction.metric
    }
    texts = (by_arm.get(arm) for arm in (*interaction.of, *interaction.than))
    return next(filter(None, texts), interaction.why_not)


def unreachable_text(study: Study) -> list[str]:
    """Return a line for each outcome of the decision rule that cannot occur in this study."""
    return [
        sentence(
            "unreachable",
            name=name,
            claim=claim,
            reasons=reasons,
            rule=find_rule(study).name,
            n=len(study.seeds),
            least=DESCRIPTIVE_BELOW,
            contrasts=numbers.plural(len(study.contrasts), "contrast"),
            p=least_events_p(study) or 0.0,
        )
        for name, claim, reasons in unreachable(study)
    ]
