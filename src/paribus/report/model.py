"""Report of a study as plain data; source of the terminal card, HTML page and PDF."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from paribus import numbers
from paribus.analysis import Analysis, Contrast
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
    join,
    join_some,
    loss_text,
    missing_text,
    size_text,
    speed_text,
)
from paribus.statistics import DESCRIPTIVE_BELOW

KEEPING = ("BASELINE", "IMPROVES", "NO EFFECT", "REJECT")  # outcomes that keep the reference
COST_NOTES = {
    "not measured": "speed not measured",
    "over": "cost exceeds its budget",
    "not shown": "cost not shown to be within its budget",
}


@dataclass(frozen=True)
class Row:
    """Report row: result of an arm or interaction on one endpoint.

    Attributes:
        label: title of the arm or interaction.
        word: verdict label, such as "BETTER".
        change: formatted change with its interval, or the reason why it is missing.
        tests: p-value of the deciding test, plus Holm's p if it differs: `p 0.025, Holm 0.051`.
        note: remark shown next to the verdict label.
        against: title of the reference arm.
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
        return f"{self.title}; {only.label} {only.mean}" if only else self.title

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
class Chip:
    """Summary badge shown next to the verdicts, such as "15 of 15 trials".

    Attributes:
        section: id of the page section that the badge links to.
        style: "good", "open" or "bad", or "" for no style.
    """

    text: str
    section: str
    style: str = ""


@dataclass(frozen=True)
class Report:
    """Report of a study: question, results and verdicts.

    Attributes:
        question: question of the study, prefixed with `Exploratory: ` if nothing was registered.
        lead: sentence naming the arms whose trials all diverged, or "".
        blocks: results, one block per endpoint.
        reading: sentence that explains how to read the numbers.
        action: decision of the registered rule, or "" if it decides nothing.
        overruled: why the rule does not adopt an arm that is BETTER, or "".
        cautions: unique cautions of all verdicts, most severe first.
        cautions_of: cautions of each verdict, in the order of `verdicts`.
        missing: sentence listing the missing trials of an unfinished study, or "".
        chips: summary badges with counts of trials, controls and stable trials.
        hypotheses: hypotheses of the study, each with the verdicts for and against it.
    """

    question: str
    lead: str
    blocks: tuple[Block, ...]
    reading: str
    action: str
    overruled: str
    cautions: tuple[Caution, ...]
    cautions_of: tuple[tuple[Caution, ...], ...]
    missing: str
    chips: tuple[Chip, ...]
    hypotheses: tuple[Judgement, ...]
    verdicts: Verdicts

    @property
    def facts(self) -> list[str]:
        """Texts of the badges that count trials and controls."""
        return [chip.text for chip in self.chips if chip.section in ("trials", "controls")]

    @property
    def gravest(self) -> Caution | None:
        """Most severe caution, or None if there are no cautions."""
        return self.cautions[0] if self.cautions else None


def build_report(verdicts: Verdicts) -> Report:
    """Build the report from a study's verdicts."""
    analysis, study = verdicts.analysis, verdicts.analysis.study
    every = all_cautions(verdicts)
    question = study.question or study.title or study.name
    if analysis.runs and analysis.runs.exploratory:
        question = f"Exploratory: {question}"
    builder = _Builder(analysis, verdicts, study.called)
    return Report(
        question=question,
        lead=builder.lead(),
        blocks=(
            *(builder.primary() if study.contrasts else builder.scores_of_one_arm()),
            *builder.interactions(),
            *builder.secondary(),
        ),
        reading=builder.reading(),
        action=builder.action(),
        overruled=builder.overruled(),
        cautions=tuple(shown_cautions(verdicts, every)),
        cautions_of=tuple(every),
        missing=missing_text(analysis),
        chips=tuple(builder.chips()),
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
            margin = contrast.declared.stated_text(verdict.margin or 0)
            of_word = f"gain may be smaller than the margin {margin}"
        elif word == "UNRESOLVED":
            of_word = needs_text(analysis, verdict)
            if verdict.needed.pairs or verdict.needed.instead:
                of_word = f"needs {of_word}"
        notes = (
            of_word,
            COST_NOTES.get(verdict.cost, ""),
            speed_text(analysis, arm),
            size_text(analysis, arm),
            lost,
        )
        n = verdict.n or (verdict.evidence.n if word == "DESCRIPTIVE" else 0)
        sizes = contrast.by_run.runs[::-1] if contrast.by_run and contrast.by_run.runs else ()
        change, note = f"{change}  {self._n(n, sizes)}".rstrip(), "; ".join(filter(None, notes))
        against = self.called[verdict.reference]
        tests = "" if word == "SAME" else _tests(verdict.p, verdict.adjusted_p)
        return Row(self.called[arm], word, change, tests, note, against)

    def _n(self, n: int, sizes: Sequence[int] = ()) -> str:
        """Format the sample size as `n = 3` if it is small or differs between rows, else "".

        Args:
            sizes: number of runs of each arm; both are shown if they differ.
        """
        if len(set(sizes)) > 1:
            return f"n = {' and '.join(map(str, sizes))}"
        counts = {verdict.n for verdict in self.verdicts if verdict.n}
        return f"n = {n}" if n and (n < DESCRIPTIVE_BELOW or len(counts) > 1) else ""

    def _compared(self, arm: str, metric: Metric) -> Compared:
        summary = self.analysis.summary(arm, metric.name)
        mean = metric.value_text(summary.mean) + ("%" if metric.is_share else "")
        return Compared(self.called[arm], mean, summary.n)

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
        says, note = interaction.found.decided, why_no_interaction(self.verdicts, interaction)
        if interaction.word == "SAME":
            note = inside_text(self.analysis.study, interaction.found)
        change = ""
        if says:
            ends = (says.interval.low, says.interval.high)
            change = interaction.found.declared.delta_text(says.mean, *ends)
        change = f"{change}  {self._n(interaction.n)}".strip()
        p, adjusted_p = interaction.p, interaction.adjusted_p
        tests = "" if interaction.word == "SAME" else _tests(p, adjusted_p)
        return Row(interaction.title, interaction.word, change, tests, note)

    def secondary(self) -> list[Block]:
        """Build one block per secondary score of finished runs; return [] for other studies."""
        rows = []
        for contrast in secondary_contrasts(self.analysis) if self.analysis.runs else ():
            late = zip((contrast.arm, contrast.reference), contrast.censored, strict=True)
            never = ", ".join(f"{n} of {self.called[arm]}" for arm, n in late if n)
            note = f"never reached: {never}" if never else ""
            label, change = self.called[contrast.arm], change_text(contrast)
            tests = _tests(contrast.p, contrast.holm_p)
            rows.append((contrast.metric, Row(label, "", change, tests, note)))
        return self._blocks(rows, is_secondary=True)

    def lead(self) -> str:
        """Return a sentence naming the arms whose trials all diverged, or "" if there are none."""
        study, analysis = self.analysis.study, self.analysis
        lost = [arm for arm in study.arms if analysis.all_diverged(arm)]
        if not lost:
            return ""
        arms = "every arm" if len(lost) == len(study.arms) else join([self.called[a] for a in lost])
        return f"Every trial of {arms} diverged."

    def reading(self) -> str:
        """Return a sentence that explains the numbers in the rows."""
        study = self.analysis.study
        references = {reference for _, reference in study.contrasts}
        if not references:
            return ""
        against = self.called[references.pop()] if len(references) == 1 else "its reference"
        decided = [c for c in self.analysis.contrasts if c.primary and c.decided]
        counts = sorted({len(c.seeds) for c in decided})
        text = f"Change against {against}"
        if study.is_paired:
            text += " at the same seed"
            ends = dict.fromkeys(map(str, (counts[:1] + counts[-1:])))
            text += f" (n = {' to '.join(ends)})" if counts else ""
        if any(c.decided.has_interval for c in decided if c.decided):
            text += f", with its {numbers.level(study.inference.alpha)} interval"
            if any(c.tested for c in decided):
                text += " and p" + ("; verdicts use Holm's p" if study.family > 1 else "")
        if any(verdict.word == "DESCRIPTIVE" for verdict in self.verdicts):
            runs = "pairs" if study.is_paired else "runs per arm"
            text += f". Fewer than {DESCRIPTIVE_BELOW} {runs} are described, not tested"
        if self.analysis.chosen_on_judged_text and any(is_of_text(v.metric) for v in self.verdicts):
            text += ". The arms were tuned on the same text with different seeds"
        is_open = any(verdict.word == "UNRESOLVED" for verdict in self.verdicts)
        notes = dict(self.analysis.runs.notes) if self.analysis.runs else {}
        shown = [notes[code] for code in READING if is_open or code != "may_pair" if code in notes]
        return " ".join([f"{text}.", *shown])

    def action(self) -> str:
        """Return a sentence stating the rule's decision, or "" if nothing is decided."""
        overruled = {v.metric for v in self._overruled}
        shown = [v for v in self.verdicts if v.metric not in overruled]
        labels = dict.fromkeys(v.label for v in shown)
        clauses = {label: self._clause([v for v in shown if v.label == label]) for label in labels}
        if not any(clauses.values()):
            return ""
        text = next(iter(clauses.values()))
        if len(set(clauses.values())) > 1:
            text = "; ".join(
                f"on {label}, {clause or 'no decision'}" for label, clause in clauses.items()
            )
        return f"By the rule {rule_of(self.analysis).name}: {text}{self._losses()}."

    def _clause(self, verdicts: list[Verdict]) -> str:
        adopted = [self.called[v.arm] for v in verdicts if v.outcome == "ADOPT"]
        kept = [self.called[v.reference] for v in verdicts if v.outcome in KEEPING]
        left = [self.called[v.arm] for v in verdicts if v.outcome == "INCONCLUSIVE"]
        if adopted:
            text = f"adopt {join_some(adopted)}"
            text += ", each tested alone, not in combination" if len(adopted) > 1 else ""
        elif kept:
            text = f"keep {kept[0] if len(set(kept)) == 1 else 'each reference'}"
        else:
            return ""
        return text + (f" ({join_some(left)} undecided)" if left else "")

    def _losses(self) -> str:
        """Return a clause listing the metrics on which adopted arms are worse, or ""."""
        losses = {}
        for verdict in self.verdicts:
            contrast = self.analysis.contrast(verdict.arm, verdict.metric)
            worse = losses_elsewhere(self.analysis, contrast) if verdict.outcome == "ADOPT" else []
            if worse:
                losses[verdict.arm] = join(list(map(loss_text, worse)))
        text = ", and ".join(f"{self.called[arm]} is worse in {w}" for arm, w in losses.items())
        return f", but {text}" if text else ""

    @property
    def _overruled(self) -> list[Verdict]:
        return [v for v in self.verdicts if v.word == "BETTER" and v.outcome in KEEPING]

    def overruled(self) -> str:
        """Return a sentence explaining why the rule does not adopt a BETTER arm, or ""."""
        if not (kept := self._overruled):
            return ""
        labels, rule = join(list(dict.fromkeys(v.label for v in kept))), rule_of(self.analysis).name
        return f"Better on {labels}, but not adopted by the rule {rule}: {kept[0].reason}."

    def chips(self) -> Iterable[Chip]:
        """Yield badges that count trials, controls, excluded runs and stable trials."""
        analysis, runs = self.analysis, self.analysis.runs
        total = analysis.n_trials
        finished = len(analysis.events)
        style = "" if finished == total else "open"
        yield Chip(f"{finished} of {total} trials", "trials", style)
        states = Counter(control.state for control in analysis.controls)
        n_held = states["held"] + states["declared"]
        if runs:
            yield Chip("controls: not recorded", "controls", "open")
            if runs.refused:
                files = numbers.plural(runs.files, "file")
                yield Chip(f"{len(runs.refused)} of {files} could not be read", "trials", "open")
        elif states:
            style = "bad" if states["broken"] else "good" if n_held == states.total() else "open"
            yield Chip(f"{n_held} of {states.total()} controls hold", "controls", style)
        if runs and analysis.study.is_paired:
            alone = {
                (arm, seed)
                for pair in analysis.study.contrasts
                for arm, partner in (pair, pair[::-1])
                for seed in analysis.seeds_of(arm) - analysis.seeds_of(partner)
            }
            if alone:
                excluded = numbers.plural(len(alone), "unpaired run")
                yield Chip(f"{excluded} excluded", "trials", "open")
        if analysis.excluded:
            counts = (f"{n} of {self.called[arm]}" for arm, n in analysis.excluded.items())
            yield Chip(f"failed runs excluded: {', '.join(counts)}", "trials", "open")
        if events := [event for event in analysis.events.values() if event.has_losses]:
            stable = sum(not (event.diverged or event.spiked) for event in events)
            style = "good" if stable == len(events) else "open"
            yield Chip(f"{stable} of {len(events)} trials stable", "stability", style)

    def scores_of_one_arm(self) -> Iterable[Block]:
        """Yield one block per primary endpoint of a single-arm study."""
        study, analysis = self.analysis.study, self.analysis
        for endpoint in study.judged:
            metric = analysis.metrics[endpoint.metric]
            summary = analysis.summary(study.baseline, metric.name)
            sd = f", SD {metric.value_text(summary.sd)}" if summary.sd is not None else ""
            score = f"mean {metric.value_text(summary.mean)}{sd}, n = {summary.n}"
            yield Block(metric.title, (Row(self.called[study.baseline], "", score, ""),))


def _tests(p: float | None, holm_p: float | None) -> str:
    """Format a p-value, followed by the Holm-adjusted one if it differs.

    Callers omit both for SAME verdicts, because they test for a difference, not for equivalence.
    """
    text, holm = numbers.p_value(p), numbers.p_value(holm_p)
    holm = f", Holm {holm}" if holm != text else ""
    return f"p {text}{holm}" if text else ""


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
