"""Report of a study as plain data, the source of the terminal card, HTML page and PDF."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from paribus import numbers
from paribus.analysis import Analysis, Contrast, Interacting
from paribus.decision import STYLE_OF, Depends, Judgement, Verdict, Verdicts, judge, rule_of
from paribus.decision.evidence import losses_elsewhere
from paribus.decision.verdict import is_of_text
from paribus.metric import Metric
from paribus.report.cautions import (
    READING,
    Caution,
    all_cautions,
    may_be_small,
    needs_text,
    shown_cautions,
    why_no_interaction,
)
from paribus.report.cells import (
    change_text,
    divergence_text,
    inside_text,
    loss_text,
    p_text,
    size_text,
    speed_text,
)
from paribus.report.chips import Chip, chips_of
from paribus.report.sentences import join, sentence
from paribus.statistics import DESCRIPTIVE_BELOW
from paribus.study.base import CONTROLS

KEEPING = ("BASELINE", "IMPROVES", "NO EFFECT", "REJECT")  # outcomes that keep the reference


@dataclass(frozen=True)
class Row:
    """Report row: result of an arm or interaction on one endpoint.

    Attributes:
        label: title of the arm or interaction.
        word: verdict label, such as "BETTER".
        change: formatted change with its interval, or the reason why it is missing.
        tests: p-values of the deciding tests, plus Holm's p if it differs: `p 0.025, Holm 0.051`.
            SAME has that of two one-sided tests. An exact p is of divergence and spikes.
        note: a remark shown beside the word.
        against: title of the reference.
    """

    label: str
    word: str
    change: str
    tests: str
    note: str = ""
    against: str = ""

    @property
    def style(self) -> str:
        """Name of the display style for the verdict label."""
        return STYLE_OF.get(self.word, "plain")


@dataclass(frozen=True)
class Compared:
    """Reference arm's title and mean score over `n` seeds on one endpoint."""

    label: str
    mean: str
    n: int

    def __str__(self) -> str:
        """Return the label with its mean, if there is one."""
        return f"mean of {self.label}: {self.mean}" if self.n else self.label


@dataclass(frozen=True)
class Block:
    """Results on one endpoint: a title, one row per arm (best first), and the reference arms."""

    title: str
    rows: tuple[Row, ...]
    compared: tuple[Compared, ...] = ()
    is_secondary: bool = False

    @property
    def heading(self) -> str:
        """Title, followed by the reference's mean if there is exactly one reference."""
        only = self.compared[0] if len(self.compared) == 1 else None
        return f"{self.title}; {only}" if only and only.n else self.title

    @property
    def groups(self) -> list[tuple[Compared | None, list[Row]]]:
        """Rows grouped by reference arm."""
        if not self.compared:
            return [(None, list(self.rows))]
        return [
            (reference, [row for row in self.rows if row.against == reference.label])
            for reference in self.compared
        ]


@dataclass(frozen=True)
class Card:
    """Summary of a report: question, results and cautions.

    Attributes:
        question: question of the study, prefixed with `Exploratory: ` if nothing was registered.
        lead: sentence naming the arms whose trials all diverged, or "".
        blocks: results, one block per endpoint.
        reading: sentence that explains how to read the numbers.
        action: decision of the registered rule, or "" if it decides nothing.
        secondary: changes on secondary endpoints, or "".
        overruled: why the rule does not adopt an arm that is BETTER, or "".
        cautions: unique cautions of all verdicts, most severe first.
        missing: sentence listing the missing trials of an unfinished study, or "".
        chips: summary badges with counts of trials, controls and stable trials.
    """

    question: str
    lead: str
    blocks: tuple[Block, ...]
    reading: str
    action: str
    secondary: str
    overruled: str
    cautions: tuple[Caution, ...]
    missing: str
    chips: tuple[Chip, ...]

    @property
    def facts(self) -> list[str]:
        """Texts of the badges that count trials and controls."""
        return [chip.text for chip in self.chips if chip.section in ("trials", "controls")]

    @property
    def gravest(self) -> Caution | None:
        """Most severe caution, or None if there are no cautions."""
        return self.cautions[0] if self.cautions else None


@dataclass(frozen=True)
class Report(Card):
    """Report of a study: its card and verdicts.

    Attributes:
        cautions_of: cautions of each verdict, in the order of `verdicts`.
        hypotheses: hypotheses of the study, each with the verdicts for and against it.
    """

    cautions_of: tuple[tuple[Caution, ...], ...]
    hypotheses: tuple[Judgement, ...]
    verdicts: Verdicts


def build_report(verdicts: Verdicts) -> Report:
    """Build the report from a study's verdicts."""
    analysis, study = verdicts.analysis, verdicts.analysis.study
    every = all_cautions(verdicts)
    question = CONTROLS.sub(" ", study.question or study.title or study.name)
    if analysis.runs and analysis.runs.exploratory:
        question = f"Exploratory: {question}"
    builder = _Builder(analysis, verdicts, study.called)
    return Report(
        question=question,
        lead=builder.lead(),
        blocks=(
            *(builder.primary() if study.contrasts else builder.scores_of_one_arm()),
            *builder.interactions(),
            *builder.scores(),
        ),
        reading=builder.reading(),
        action=builder.action(),
        secondary=builder.secondary(),
        overruled=builder.overruled(),
        cautions=tuple(shown_cautions(verdicts, every)),
        cautions_of=tuple(every),
        missing=sentence("missing", total=analysis.n_trials, missing=analysis.missing)
        if analysis.missing
        else "",
        chips=tuple(chips_of(analysis)),
        hypotheses=tuple(judge(study, verdicts)),
        verdicts=verdicts,
    )


@dataclass(frozen=True)
class _Builder:
    analysis: Analysis
    verdicts: Verdicts
    called: Mapping[str, str]

    def primary(self) -> list[Block]:
        """Build one block per primary endpoint."""
        study, analysis = self.analysis.study, self.analysis
        references = dict.fromkeys(reference for _, reference in study.contrasts)
        blocks = []
        for endpoint in study.judged:
            metric = analysis.metrics[endpoint.metric]
            sign = -1 if metric.better == "higher" else 1
            own = [verdict for verdict in self.verdicts if verdict.metric == metric.name]
            own.sort(key=lambda verdict: (verdict.effect is None, sign * (verdict.effect or 0.0)))
            targets = list(dict.fromkeys(verdict.target for verdict in own if verdict.target))
            on = f", on {join(targets)}" if targets else ""
            rows = tuple(map(self._row, own))
            compared = tuple(self._compared(arm, metric) for arm in references)
            blocks.append(Block(f"{title_of(metric)}{on}", rows, compared))
        return blocks

    def _row(self, verdict: Verdict) -> Row:
        analysis, arm, word = self.analysis, verdict.arm, verdict.word
        contrast, study = analysis.contrast(arm, verdict.metric), analysis.study
        change = change_text(contrast)
        lost = "" if verdict.evidence.invalid else divergence_text(analysis, arm)
        if lost and contrast.decided is None:
            change, lost = lost, ""
        elif contrast.decided is None and word == "DESCRIPTIVE":
            means = [analysis.summary(a, verdict.metric).mean for a in (arm, verdict.reference)]
            if means[0] is not None and means[1] is not None:
                change = contrast.declared.change_text(means[0] - means[1])
        of_word = ""
        if word == "SAME" and verdict.margin is not None:
            of_word = inside_text(study, contrast)
        elif word == "BETTER" and may_be_small(verdict):
            of_word = sentence("small", margin=contrast.declared.stated_text(verdict.margin or 0))
        elif word == "UNRESOLVED":
            of_word = needs_text(analysis, verdict)
            if verdict.needed.instead or (verdict.needed.pairs and not verdict.needed.why_not):
                of_word = f"needs {of_word}"
        notes = (
            of_word,
            sentence("cost", code=verdict.cost) if verdict.cost else "",
            speed_text(analysis, arm),
            size_text(analysis, arm),
            lost,
        )
        n = verdict.n or (verdict.evidence.n if word == "DESCRIPTIVE" else 0)
        change, note = f"{change}  {self._n(n, contrast)}".rstrip(), "; ".join(filter(None, notes))
        against = self.called[verdict.reference]
        tests = [self._exact(verdict), _deciding(word, contrast)]
        return Row(self.called[arm], word, change, "; ".join(filter(None, tests)), note, against)

    def _exact(self, verdict: Verdict) -> str:
        """Format the exact p-value for divergence and spikes if it decides the label, else ""."""
        stability = self.analysis.stability(verdict.arm)
        if not self._by_events(verdict) or stability is None:
            return ""
        alpha, p = self.analysis.study.inference.alpha, stability.any_event.p_value
        if stability.holm_p is not None and stability.holm_p <= alpha:
            return p_text(p, stability.holm_p, "exact p")
        p = stability.diverged.p_value  # see `events_shown`
        doubled = min(1.0, 2 * len(self.analysis.study.contrasts) * p)
        return p_text(p, doubled, "exact p")

    def _by_events(self, verdict: Verdict) -> bool:
        is_shown = verdict.evidence.state.fix != "unshown"
        return is_shown and verdict.word in ("BETTER", "WORSE")

    def _n(self, n: int, contrast: Contrast | None = None) -> str:
        """Format the sample size as `n = 3`, or `n = 6 against 8` if the arms' sizes differ.

        Returns "" if all rows have the same size, which `reading` states, unless it is small.
        """
        if sizes := _sizes(contrast):
            return f"n = {sizes[0]} against {sizes[1]}"
        counts = {verdict.n for verdict in self.verdicts if verdict.n}
        return f"n = {n}" if n and (n < DESCRIPTIVE_BELOW or len(counts) > 1) else ""

    def _compared(self, arm: str, metric: Metric) -> Compared:
        summary = self.analysis.summary(arm, metric.name)
        mean = metric.value_text(summary.mean) + ("%" if metric.is_share else "")
        return Compared(self.called[arm], mean, summary.n if summary.mean is not None else 0)

    def interactions(self) -> list[Block]:
        """Build one block of interactions per primary endpoint."""
        rows = [
            (depends.metric, self._interaction(depends)) for depends in self.verdicts.interactions
        ]
        return self._blocks(rows, ", difference between effects")

    def _blocks(
        self, rows: Iterable[tuple[str, Row]], suffix: str = "", *, is_secondary: bool = False
    ) -> list[Block]:
        """Group (metric, row) pairs into one block per metric."""
        blocks: dict[str, list[Row]] = {}
        for metric, row in rows:
            blocks.setdefault(metric, []).append(row)
        return [
            Block(
                f"{self.analysis.metrics[metric].change_title}{suffix}",
                tuple(own),
                is_secondary=is_secondary,
            )
            for metric, own in blocks.items()
        ]

    def _interaction(self, interaction: Depends) -> Row:
        says, note = interaction.interacting.decided, why_no_interaction(self.verdicts, interaction)
        if interaction.word == "SAME":
            note = inside_text(self.analysis.study, interaction.interacting)
        change = ""
        if says:
            ends = (says.interval.low, says.interval.high)
            change = interaction.interacting.declared.delta_text(says.mean, *ends)
        change = f"{change}  {self._n(interaction.n)}".strip()
        tests = _deciding(interaction.word, interaction.interacting)
        return Row(interaction.title, interaction.word, change, tests, note)

    def secondary(self) -> str:
        """Return a sentence with the first changes on secondary endpoints, or ""."""
        own = [] if self.analysis.runs else secondary_contrasts(self.analysis)
        rows = [
            (c.declared.label, self.called[c.arm], c.declared.change_text(says.mean), c.p)
            for c in own
            if (says := c.decided)
        ]
        return sentence("secondary", rows=rows) if rows else ""

    def scores(self) -> list[Block]:
        """Build one block per secondary score of finished runs; return [] for other studies."""
        rows = []
        for contrast in secondary_contrasts(self.analysis) if self.analysis.runs else ():
            late = zip((contrast.arm, contrast.reference), contrast.censored, strict=True)
            never = [f"{n} of {self.called[arm]}" for arm, n in late if n]
            note = sentence("never", counts=never) if never and contrast.decided else ""
            label, change = self.called[contrast.arm], change_text(contrast)
            tests = p_text(contrast.p, contrast.holm_p)
            rows.append((contrast.metric, Row(label, "", change, tests, note)))
        return self._blocks(rows, is_secondary=True)

    def lead(self) -> str:
        """Return a sentence naming the arms whose trials all diverged, or "" if there are none."""
        arms = list(self.analysis.study.arms)
        lost = [self.called[arm] for arm in arms if self.analysis.all_diverged(arm)]
        return sentence("lead", arms=lost, all=len(lost) == len(arms)) if lost else ""

    def reading(self) -> str:
        """Return a sentence that explains the numbers in the rows."""
        study, runs = self.analysis.study, self.analysis.runs
        references = {reference for _, reference in study.contrasts}
        if not references:
            return ""
        decided = [c for c in self.analysis.contrasts if c.primary and c.decided]
        counts = sorted({c.by_run.n if c.by_run else len(c.seeds) for c in decided})
        if not study.is_paired and (len(counts) > 1 or any(map(_sizes, decided))):
            counts = []  # each row has its own
        words = {verdict.word for verdict in self.verdicts}
        notes = dict(runs.notes) if runs else {}
        codes = [code for code in READING if "UNRESOLVED" in words or code != "may_pair"]
        has_interval = any(c.decided.has_interval for c in decided if c.decided)
        exact = "McNemar's" if study.is_paired else "Fisher's"
        return sentence(
            "reading",
            against=self.called[references.pop()] if len(references) == 1 else "its reference",
            shows_change=bool(decided),
            is_paired=study.is_paired,
            n=counts[:1] + counts[-1:],
            level=numbers.level(study.inference.alpha) if has_interval else "",
            shows_p=any(
                c.tested and v.word != "SAME" for v in self.verdicts for c in [self._of(v)]
            ),
            is_family=study.family > 1,
            shows_same="SAME" in words,
            exact=exact if any(map(self._by_events, self.verdicts)) else "",
            described=("pairs" if study.is_paired else "runs per arm") * ("DESCRIPTIVE" in words),
            least=DESCRIPTIVE_BELOW,
            same_text=self.analysis.chosen_on_judged_text
            and any(is_of_text(verdict.metric) for verdict in self.verdicts),
            notes=[notes[code] for code in codes if code in notes],
        )

    def _of(self, verdict: Verdict) -> Contrast:
        return self.analysis.contrast(verdict.arm, verdict.metric)

    def action(self) -> str:
        """Return a sentence stating the rule's decision, or "" if nothing is decided."""
        rule, overruled = rule_of(self.analysis), {v.metric for v in self._overruled}
        choices: dict[str, dict[str, list[str]]] = {}
        for v in self.verdicts:
            if v.metric not in overruled:
                own = choices.setdefault(v.label, {"adopted": [], "kept": [], "left": []})
                own["adopted"] += [self.called[v.arm]] * (v.outcome == "ADOPT")
                own["kept"] += [self.called[v.reference]] * (v.outcome in KEEPING)
                own["left"] += [self.called[v.arm]] * (v.outcome == "INCONCLUSIVE")
        losses = {
            v.arm: list(map(loss_text, losses_elsewhere(self.analysis, self._of(v))))
            for v in self.verdicts
            if v.outcome == "ADOPT"
        }
        benefits = list(self._benefits()) if "benefit" in rule.keys else []
        if not (any(own["adopted"] or own["kept"] for own in choices.values()) or benefits):
            return ""
        worse = {self.called[arm]: texts for arm, texts in losses.items() if texts}
        return sentence("action", rule=rule.name, choices=choices, losses=worse, benefits=benefits)

    def _benefits(self) -> Iterable[tuple[str, str, str, str, str]]:
        """Yield (arm, rule's reason, benefit, its change, required change) for valid verdicts."""
        decision = self.analysis.study.decision
        for v in self.verdicts:
            if not v.evidence.invalid:
                benefit = self.analysis.contrast(v.arm, decision.benefit)
                metric, least = benefit.declared, decision.least_benefit
                asked = metric.stated_text(least) if least else ""
                yield self.called[v.arm], v.reason, metric.label, change_text(benefit), asked

    @property
    def _overruled(self) -> list[Verdict]:
        return [v for v in self.verdicts if v.word == "BETTER" and v.outcome in KEEPING]

    def overruled(self) -> str:
        """Return a sentence on why the rule adopts no BETTER arm, or "" if this does not apply."""
        groups: dict[str, list[Verdict]] = {}
        for v in self._overruled:
            groups.setdefault(v.reason, []).append(v)
        texts = [
            sentence(
                "overruled",
                arms=list(dict.fromkeys(self.called[v.arm] for v in own)),
                labels=list(dict.fromkeys(v.label for v in own)),
                rule=rule_of(self.analysis).name,
                reason=reason,
            )
            for reason, own in groups.items()
        ]
        return " ".join(texts)

    def scores_of_one_arm(self) -> Iterable[Block]:
        """Yield one block per primary endpoint of a single-arm study."""
        study, analysis = self.analysis.study, self.analysis
        for endpoint in study.judged:
            metric = analysis.metrics[endpoint.metric]
            summary = analysis.summary(study.baseline, metric.name)
            sd = f", SD {metric.value_text(summary.sd)}" if summary.sd is not None else ""
            score = f"mean {metric.value_text(summary.mean)}{sd}, n = {summary.n}"
            yield Block(metric.title, (Row(self.called[study.baseline], "", score, ""),))


def _deciding(word: str, difference: Contrast | Interacting) -> str:
    """Format the p-value of the deciding test, which for SAME is a TOST."""
    says = difference.decided
    if word == "SAME" and says is not None:
        return p_text(says.equivalence_p, difference.equivalence_holm_p, "TOST p")
    return p_text(difference.p, difference.holm_p)


def _sizes(contrast: Contrast | None) -> tuple[int, ...]:
    """Return the number of runs of the arm and of its reference if they differ, else ()."""
    sizes = contrast.by_run.runs[::-1] if contrast and contrast.by_run else ()
    return tuple(sizes) if len(set(sizes)) > 1 else ()


def title_of(metric: Metric) -> str:
    """Format a metric's title and direction: `validation loss (nats/token), lower is better`.

    The direction is omitted for shares where higher is better, such as accuracy.
    """
    is_plain = metric.better == "neither" or (metric.is_share and metric.better == "higher")
    return metric.change_title + ("" if is_plain else f", {metric.better} is better")


def secondary_contrasts(analysis: Analysis) -> list[Contrast]:
    """Return all contrasts on secondary endpoints, in the order of the endpoints."""
    return [
        analysis.contrast(arm, endpoint.metric)
        for endpoint in analysis.study.endpoints
        if not endpoint.primary
        for arm, _ in analysis.study.contrasts
    ]
