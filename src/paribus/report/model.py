"""The report of a study as plain data, from which the card, the page and the PDF are rendered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paribus import numbers
from paribus.analysis import Analysis, Contrast, Cost
from paribus.decision import (
    STYLE_OF,
    Depends,
    Judgement,
    Verdict,
    Verdicts,
    depends,
    judge,
    rule_of,
)
from paribus.decision.evidence import losses_elsewhere, stated
from paribus.decision.verdict import finite
from paribus.metric import Metric
from paribus.report.cautions import (
    ON_ROW,
    Caution,
    all_cautions,
    may_be_small,
    needs_text,
    uncommitted,
)
from paribus.report.cells import (
    change_text,
    divergence_text,
    inside_text,
    join,
    loss_text,
    missing_text,
    size_text,
    speed_text,
)
from paribus.statistics import DESCRIPTIVE_BELOW

KEEPING = ("BASELINE", "IMPROVES", "NO EFFECT", "REJECT")  # outcomes that keep the reference
COST_NOTES = {
    "not measured": "cost not measured",
    "over": "cost over its budget",
    "not shown": "cost not shown within its budget",
}
MOST_NAMED = 3  # arms in a sentence


@dataclass(frozen=True)
class Row:
    """An arm, or an interaction, on one endpoint.

    Attributes:
        name: the arm's name in the study; empty for an interaction.
        label, against: the arm and its reference for readers.
        word, style: the word, and the style that it is shown in.
        change: the change with its interval, or why there is none.
        p, holm_p: of the test that decides, and by Holm's method; empty if untested or equal.
        notes: what stands beside the word.
        cautions: of this arm, the gravest first.
        verdict: None for an interaction.
    """

    name: str
    label: str
    against: str
    word: str
    style: str
    change: str
    p: str
    holm_p: str
    notes: tuple[str, ...]
    cautions: tuple[Caution, ...]
    verdict: Verdict | None

    @property
    def note(self) -> str:
        """The notes in one line."""
        return "; ".join(self.notes)

    @property
    def tests(self) -> str:
        """`p 0.025, Holm 0.051`."""
        holm = f"Holm {self.holm_p}" if self.holm_p not in ("", self.p) else ""
        return ", ".join(filter(None, (self.p and f"p {self.p}", holm)))


@dataclass(frozen=True)
class Compared:
    """What arms are compared with on one endpoint: its mean over `n` seeds."""

    name: str
    label: str
    mean: str
    n: int
    description: str


@dataclass(frozen=True)
class Block:
    """One endpoint: a title, its arms with the best change first, and their references."""

    title: str
    metric: str
    rows: tuple[Row, ...]
    compared: tuple[Compared, ...]
    is_secondary: bool = False


@dataclass(frozen=True)
class Chip:
    """A fact beside the answer, the section with more on it, and a style for how good it is."""

    text: str
    section: str
    style: str = ""


@dataclass(frozen=True)
class Report:
    """What a study asked, found and decided.

    Attributes:
        question: the question; with `Exploratory: ` before it if nothing was registered.
        lead: what comes before any word, such as that every trial of an arm diverged.
        blocks: the endpoints.
        reading: how to read the numbers.
        action: what the registered rule says to do; empty if it decides nothing.
        overruled: why the rule keeps the reference of a BETTER arm; empty if it does not.
        cautions: of all verdicts, each sentence once, the gravest first.
        missing: what an unfinished study lacks.
        facts: trials and controls, counted.
        chips: the same for the page, with stability, speed and calibration.
        hypotheses: judged by the verdicts.
        bar: of a study of one arm, its score on each endpoint.
    """

    question: str
    lead: str
    blocks: tuple[Block, ...]
    reading: str
    action: str
    overruled: str
    cautions: tuple[Caution, ...]
    missing: str
    facts: tuple[str, ...]
    chips: tuple[Chip, ...]
    hypotheses: tuple[Judgement, ...]
    verdicts: Verdicts
    called: Mapping[str, str]
    bar: tuple[str, ...] = ()

    @property
    def rows(self) -> list[Row]:
        """Rows of the primary endpoints."""
        return [row for block in self.blocks if not block.is_secondary for row in block.rows]

    @property
    def gravest(self) -> Caution | None:
        """The caution that the card shows."""
        return self.cautions[0] if self.cautions else None


def build_report(verdicts: Verdicts, *, titles: bool = False) -> Report:
    """Return the report of verdicts; arms are called by their names, or by their `titles`."""
    analysis, study = verdicts.analysis, verdicts.analysis.study
    called = dict(study.called) if titles else {arm: arm for arm in study.arms}
    every = all_cautions(analysis, verdicts, called)
    builder = _Builder(analysis, verdicts, called, every)
    invalid = dict.fromkeys(v.evidence.invalid for v in verdicts if v.evidence.invalid)
    missing = missing_text(analysis)
    texts: dict[str, Caution] = {}
    for text in [] if missing else invalid:
        texts[text] = Caution("invalid", 3, text)
    for caution in sorted((c for several in every for c in several), key=lambda c: -c.severity):
        if caution.code not in ON_ROW and caution.severity:
            texts.setdefault(caution.text, caution)
    question = study.question or study.title or study.name
    if analysis.runs and analysis.runs.exploratory:
        question = f"Exploratory: {question}"
    return Report(
        question=question,
        lead=builder.lead(),
        blocks=(*builder.blocks(), *builder.interactions(), *builder.secondary()),
        reading=builder.reading(),
        action=builder.action(),
        overruled=builder.overruled(),
        cautions=tuple(texts.values()),
        missing=missing,
        facts=builder.facts(),
        chips=tuple(builder.chips()),
        hypotheses=tuple(judge(study, verdicts)),
        verdicts=verdicts,
        called=called,
        bar=builder.single_arm(),
    )


@dataclass(frozen=True)
class _Builder:
    analysis: Analysis
    verdicts: Verdicts
    called: Mapping[str, str]
    cautions: Sequence[tuple[Caution, ...]]

    def blocks(self) -> list[Block]:
        """Return the primary endpoints; none where nothing is compared."""
        if not self.analysis.study.contrasts:
            return []
        study, analysis = self.analysis.study, self.analysis
        references = dict.fromkeys(reference for _, reference in study.contrasts)
        blocks = []
        for endpoint in study.judged:
            metric = analysis.metrics[endpoint.metric]
            sign = -1 if metric.better == "higher" else 1
            own = [
                (verdict, cautions)
                for verdict, cautions in zip(self.verdicts, self.cautions, strict=True)
                if verdict.metric == metric.name
            ]
            own.sort(key=lambda pair: (pair[0].effect is None, sign * (pair[0].effect or 0.0)))
            targets = {verdict.target for verdict, _ in own if verdict.target}
            on = f", on {targets.pop()}" if len(targets) == 1 else ""
            rows = tuple(self._row(verdict, cautions, bool(on)) for verdict, cautions in own)
            compared = tuple(self._compared(arm, metric) for arm in references)
            blocks.append(Block(f"{title_of(metric)}{on}", metric.name, rows, compared))
        return blocks

    def _row(self, verdict: Verdict, cautions: tuple[Caution, ...], names_target: bool) -> Row:
        analysis, arm = self.analysis, verdict.arm
        contrast, study = analysis.contrast(arm, verdict.metric), analysis.study
        change, lost = change_text(contrast), ""
        if not verdict.evidence.invalid:
            lost = divergence_text(analysis, arm)
            if lost and contrast.decided is None:
                change, lost = lost, ""
        notes = []
        if verdict.word == "SAME" and verdict.margin is not None:
            notes.append(inside_text(study, contrast))
        if verdict.word == "BETTER" and may_be_small(verdict):
            margin = contrast.declared.stated_text(_margin(analysis, verdict.metric))
            notes.append(f"gain may be below the margin {margin}")
        if verdict.word == "UNRESOLVED" and contrast.decided is not None:
            needs = needs_text(verdict, is_paired=study.is_paired)
            has_number = verdict.needed.pairs or verdict.needed.instead
            notes.append(f"needs {needs}" if has_number else needs)
        notes += [
            COST_NOTES.get(verdict.cost, ""),
            speed_text(analysis, arm),
            size_text(analysis, arm),
            lost,
            "" if names_target or not verdict.target else f"on {verdict.target}",
        ]
        few = f"n = {verdict.n}" if 0 < verdict.n < DESCRIPTIVE_BELOW else ""
        p = numbers.p_or_blank(verdict.p)
        # The p of a difference says nothing about being too small to matter.
        shows_p = p and verdict.word != "SAME"
        adjusted = numbers.p_or_blank(verdict.adjusted_p)
        return Row(
            name=arm,
            label=self.called[arm],
            against=self.called[verdict.reference],
            word=verdict.word,
            style=STYLE_OF[verdict.word],
            change=f"{change}  {few}".rstrip(),
            p=p if shows_p else "",
            holm_p=adjusted if shows_p and study.family > 1 else "",
            notes=tuple(filter(None, notes)),
            cautions=cautions,
            verdict=verdict,
        )

    def _compared(self, arm: str, metric: Metric) -> Compared:
        summary, of_arm = self.analysis.summary(arm, metric.name), self.analysis.study.arms[arm]
        mean, n = summary.mean, summary.n
        # If a look ended the comparison, the mean is that of the seeds that were compared.
        pairs = {
            contrast.seeds: contrast.paired.pairs
            for contrast in self.analysis.contrasts
            if contrast.paired and (contrast.reference, contrast.metric) == (arm, metric.name)
        }
        if len(pairs) == 1 and metric.scale == "linear":
            (compared,) = pairs.values()
            mean, n = sum(pair.baseline for pair in compared) / len(compared), len(compared)
        text = f"{metric.value_text(mean)}{'%' if metric.is_share else ''}"
        described = of_arm.description if of_arm.description != self.called[arm] else ""
        return Compared(arm, self.called[arm], text, n, described)

    def interactions(self) -> list[Block]:
        """Return the differences between effects, endpoint by endpoint."""
        blocks: dict[str, list[Row]] = {}
        for interaction in depends(self.analysis, self.verdicts):
            blocks.setdefault(interaction.metric, []).append(self._interaction(interaction))
        return [
            Block(
                f"{self.analysis.metrics[metric].change_title}, difference between effects",
                metric,
                tuple(rows),
                (),
            )
            for metric, rows in blocks.items()
        ]

    def _interaction(self, interaction: Depends) -> Row:
        says, metric, same = (
            interaction.found.decided,
            interaction.found.declared,
            interaction.word == "SAME",
        )
        change = metric.delta_text(says.mean, says.interval.low, says.interval.high) if says else ""
        note = inside_text(self.analysis.study, interaction.found) if same else interaction.why_not
        few = f"n = {interaction.n}" if 0 < interaction.n < DESCRIPTIVE_BELOW else ""
        p = "" if same else numbers.p_or_blank(interaction.p)
        holm = "" if same else numbers.p_or_blank(interaction.adjusted_p)
        several = len(self.analysis.interactions) > 1
        return Row(
            "",
            interaction.title,
            "",
            interaction.word,
            STYLE_OF[interaction.word],
            f"{change}  {few}".strip(),
            p,
            holm if several else "",
            (note,) if note else (),
            (),
            None,
        )

    def secondary(self) -> list[Block]:
        """Return secondary scores that were asked for by name, of finished runs."""
        if not self.analysis.runs:
            return []
        blocks: dict[str, list[Row]] = {}
        for contrast in secondary_contrasts(self.analysis):
            late = zip((contrast.arm, contrast.reference), contrast.censored, strict=True)
            never = ", ".join(f"{n} of {self.called[arm]}" for arm, n in late if n)
            row = Row(
                contrast.arm,
                self.called[contrast.arm],
                self.called[contrast.reference],
                "",
                "plain",
                change_text(contrast),
                numbers.p_or_blank(contrast.p),
                numbers.p_or_blank(contrast.tested_p),
                (f"never there: {never}",) if never else (),
                (),
                None,
            )
            blocks.setdefault(contrast.metric, []).append(row)
        return [
            Block(
                self.analysis.metrics[metric].change_title,
                metric,
                tuple(rows),
                (),
                is_secondary=True,
            )
            for metric, rows in blocks.items()
        ]

    def lead(self) -> str:
        """Return that every trial of some arms diverged."""
        study, analysis = self.analysis.study, self.analysis
        lost = [arm for arm in study.arms if analysis.all_diverged(arm)]
        if not lost:
            return ""
        failed = " or failed" if analysis.excluded.keys() & set(lost) else ""
        arms = "every arm" if len(lost) == len(study.arms) else join([self.called[a] for a in lost])
        return f"Every trial of {arms} diverged{failed}."

    def reading(self) -> str:
        """Return how to read the numbers of the rows."""
        study = self.analysis.study
        references = {reference for _, reference in study.contrasts}
        if not references:
            return ""
        against = "its reference"
        if len(references) == 1:
            against = self.called[references.pop()]
        seed = " at the same seed" if study.is_paired else ""
        decided = [c for c in self.analysis.contrasts if c.primary and c.decided]
        counts = sorted({len(c.seeds) for c in decided})
        n = ""
        if counts and study.is_paired:
            n = f" (n = {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))})"
        text = f"Change against {against}{seed}{n}"
        if not any(c.decided.has_interval for c in decided if c.decided):
            return f"{text}."
        level = numbers.level(study.inference.alpha)
        if not any(c.tested for c in decided):
            return f"{text}, with its {level} interval."
        holm = "; the word goes by Holm's p" if study.family > 1 else ""
        return f"{text}, with its {level} interval and p{holm}."

    def action(self) -> str:
        """Return what the rule says to do; empty if nothing is decided."""
        decided = [v for v in self.verdicts if v.outcome == "ADOPT" or v.outcome in KEEPING]
        shown = [v for v in self.verdicts if v.metric not in self._overruled_metrics]
        if not decided or not shown:
            return ""
        labels = dict.fromkeys(v.label for v in shown)
        clauses = {label: self._clause([v for v in shown if v.label == label]) for label in labels}
        if set(clauses.values()) == {""}:
            return ""
        if len(set(clauses.values())) == 1:
            text = next(iter(clauses.values()))
        else:
            text = "; ".join(
                f"on {label} {clause or 'nothing is decided'}" for label, clause in clauses.items()
            )
        return f"By the rule {rule_of(self.analysis).name}: {text}{self._losses()}."

    def _clause(self, verdicts: list[Verdict]) -> str:
        adopted = [self.called[v.arm] for v in verdicts if v.outcome == "ADOPT"]
        kept = [v for v in verdicts if v.outcome in KEEPING]
        left = [self.called[v.arm] for v in verdicts if v.outcome == "INCONCLUSIVE"]
        n = len(verdicts)
        if adopted:
            text = f"adopt {_some(adopted, n)}"
            if len(adopted) > 1:
                text += ", each tested alone and not together"
        elif kept:
            references = list(dict.fromkeys(self.called[v.reference] for v in kept))
            text = f"keep {references[0] if len(references) == 1 else 'each reference'}"
        else:
            return ""
        return text + (f" ({_some(left, n)} undecided)" if left else "")

    def _losses(self) -> str:
        losses = {}
        for verdict in self.verdicts:
            contrast = self.analysis.contrast(verdict.arm, verdict.metric)
            lost = losses_elsewhere(self.analysis, contrast) if verdict.outcome == "ADOPT" else []
            if lost:
                losses[verdict.arm] = join(
                    [loss_text(self.analysis, contrast_elsewhere) for contrast_elsewhere in lost]
                )
        text = ", and ".join(f"{self.called[arm]} is worse in {w}" for arm, w in losses.items())
        return f", but {text}" if text else ""

    @property
    def _overruled_metrics(self) -> set[str]:
        return {v.metric for v in self.verdicts if v.word == "BETTER" and v.outcome in KEEPING}

    def overruled(self) -> str:
        """Return why the rule keeps what a BETTER arm was compared with."""
        kept = [v for v in self.verdicts if v.word == "BETTER" and v.outcome in KEEPING]
        if not kept:
            return ""
        labels = join(list(dict.fromkeys(v.label for v in kept)))
        rule = rule_of(self.analysis).name
        return f"Better on {labels}, but not adopted: by the rule {rule} {kept[0].reason}."

    def facts(self) -> tuple[str, ...]:
        """Return trials and controls, counted."""
        analysis, runs = self.analysis, self.analysis.runs
        states = Counter(control.state for control in analysis.controls)
        n_held = states["held"] + states["declared"]
        controls = f"{n_held} of {states.total()} controls hold" if states else ""
        refused = ""
        if runs:
            controls = "controls: not recorded"
            if runs.refused:
                files = numbers.plural(runs.files, "file")
                refused = f"{len(runs.refused)} of {files} could not be read"
        facts = (
            f"{analysis.n_finished} of {analysis.n_trials} trials",
            controls,
            refused,
            self._without_partner(),
            self._excluded(),
            "uncommitted changes" if uncommitted(analysis) else "",
        )
        return tuple(filter(None, facts))

    def _without_partner(self) -> str:
        analysis = self.analysis
        if not (analysis.runs and analysis.study.is_paired):
            return ""
        paired = {
            (arm, seed)
            for pair in analysis.study.contrasts
            for seed in set.intersection(*map(analysis.seeds_of, pair))
            for arm in pair
        }
        alone = len(analysis.events.keys() - paired)
        return f"{alone} without a partner excluded" if alone else ""

    def _excluded(self) -> str:
        counts = ", ".join(f"{n} of {self.called[a]}" for a, n in self.analysis.excluded.items())
        return f"failed runs excluded: {counts}" if counts else ""

    def chips(self) -> list[Chip]:
        """Return what was looked at besides quality."""
        analysis = self.analysis
        total, missing = analysis.n_trials, len(analysis.missing)
        chips = [Chip(f"{total - missing} of {total} trials", "trials", "open" if missing else "")]
        chips += [
            Chip(text, "trials", "open")
            for text in (self._without_partner(), self._excluded())
            if text
        ]
        if analysis.runs:
            chips.append(Chip("controls: not recorded", "controls", "open"))
        elif states := Counter(control.state for control in analysis.controls):
            n_held = states["held"] + states["declared"]
            style = "bad" if states["broken"] else "good" if n_held == states.total() else "open"
            chips.append(Chip(f"{n_held} of {states.total()} controls hold", "controls", style))
        if events := [event for event in analysis.events.values() if event.has_losses]:
            stable = sum(not (event.diverged or event.spiked) for event in events)
            style = "good" if stable == len(events) else "open"
            chips.append(Chip(f"{stable} of {len(events)} trials stable", "stability", style))
        speeds = {c.arm: c.throughput for c in analysis.costs if c.in_turn}
        errors = {c.arm: c.calibration for c in analysis.costs}
        chips += self._cost_chip("speed", "%", 1, -100, speeds)
        chips += self._cost_chip("calibration error", " points", 2, 100, errors)
        return chips

    def _cost_chip(
        self, name: str, unit: str, digits: int, scale: int, costs: Mapping[str, Cost | None]
    ) -> list[Chip]:
        known = {self.called[arm]: cost for arm, cost in costs.items() if cost is not None}
        if not known:
            return []
        style = "bad" if any(cost.state == "over" for cost in known.values()) else ""
        means = sorted(scale * cost.mean for cost in known.values())
        ends = dict.fromkeys(numbers.signed(mean, digits) for mean in (means[0], means[-1]))
        return [Chip(f"{name} {' to '.join(ends)}{unit}", "evaluation", style)]

    def single_arm(self) -> tuple[str, ...]:
        """Return the scores of a study that compares nothing."""
        study, analysis = self.analysis.study, self.analysis
        if study.contrasts:
            return ()
        (arm,) = study.arms
        lines = []
        for endpoint in study.judged:
            metric, summary = (
                analysis.metrics[endpoint.metric],
                analysis.summary(arm, endpoint.metric),
            )
            sd = f", SD {metric.value_text(summary.sd)}" if summary.sd is not None else ""
            mean = metric.value_text(summary.mean)
            lines.append(f"{metric.title}: mean {mean}{sd}, n = {summary.n}")
        return tuple(lines)


def title_of(metric: Metric) -> str:
    """Return `validation loss (nats/token), lower is better`; of an accuracy that is known."""
    is_plain = metric.better == "neither" or (metric.is_share and metric.better == "higher")
    return metric.change_title + ("" if is_plain else f", {metric.better} is better")


def _margin(analysis: Analysis, metric: str) -> float:
    return next(e.margin or 0 for e in analysis.study.endpoints if e.metric == metric)


def _some(arms: list[str], n: int) -> str:
    return join(arms) if len(arms) <= MOST_NAMED else f"{len(arms)} of {n} arms"


def secondary_contrasts(analysis: Analysis) -> list[Contrast]:
    """Return every contrast on the secondary endpoints, endpoint by endpoint."""
    return [
        analysis.contrast(arm, endpoint.metric)
        for endpoint in analysis.study.endpoints
        if not endpoint.primary
        for arm, _ in analysis.study.contrasts
    ]


def verdict_record(report: Report) -> dict[str, Any]:
    """Return the contents of verdict.json."""
    verdicts, analysis = report.verdicts, report.verdicts.analysis
    cautions = {(row.name, row.verdict.metric): row.cautions for row in report.rows if row.verdict}
    records = []
    for verdict in verdicts:
        evidence = verdict.evidence
        record = asdict(verdict) | {
            "action": _action(analysis, verdict),
            "needs": needs_text(verdict, is_paired=analysis.study.is_paired),
            "pairs_needed": verdict.needed.pairs,
            "evidence": {"invalid": evidence.invalid, "n": evidence.n} | evidence.state._asdict(),
            # Lack of fit that was not registered is shown and not recorded.
            "cautions": [
                asdict(caution)
                for caution in cautions[verdict.arm, verdict.metric]
                if caution.code != "lack_of_fit"
            ],
        }
        records.append(finite(record))
    content: dict[str, Any] = {"verdicts": records, "secondary": _secondary(analysis)}
    optional = {
        "hypotheses": [asdict(judgement) for judgement in report.hypotheses],
        "interactions": [
            finite({key: value for key, value in vars(one).items() if key != "found"})
            for one in verdicts.interactions
        ],
        "excluded": analysis.excluded,
        "findings": sorted({code for code, _ in analysis.runs.notes}) if analysis.runs else [],
    }
    return content | {key: value for key, value in optional.items() if value}


ACTIONS = {
    "ADOPT": "adopt {arm}",
    "IMPROVES": "the registered rule keeps {base}",
    "EQUIVALENT": "{arm} and {base} are equivalent",
    "DIFFERENT": "{arm} and {base} differ",
    "BASELINE": "keep {base}",
    "NO EFFECT": "keep {base}",
    "REJECT": "keep {base}",
}


def _action(analysis: Analysis, verdict: Verdict) -> str:
    text = ACTIONS.get(verdict.outcome, "nothing is decided")
    return text.format(arm=verdict.arm, base=verdict.reference)


def _secondary(analysis: Analysis) -> list[dict[str, Any]]:
    records = []
    for contrast in secondary_contrasts(analysis):
        record = {
            "arm": contrast.arm,
            "reference": contrast.reference,
            "metric": contrast.metric,
            "label": contrast.declared.label,
            **finite(stated(contrast.decided)),
            "adjusted_p": contrast.tested_p,
            "why_not": contrast.why_not,
        }
        if any(contrast.censored):
            record["never_reached"] = contrast.censored
        records.append(record)
    return records
