"""The paper as a document: every sentence from the analysis, none that claims more than it."""

from __future__ import annotations

from paribus import numbers
from paribus.decision import HYPOTHESES, Row, Verdict, rule_of
from paribus.digests import flatten
from paribus.numbers import plural
from paribus.report import contrast_tables, tables
from paribus.report.data_tables import data_tables
from paribus.report.looks_and_stages import looks_table, sampling_table
from paribus.report.paper.document import (
    Block,
    Document,
    Grid,
    Listing,
    Paragraph,
    Part,
    Picture,
    Ref,
    say,
)
from paribus.report.paper.findings import MOST_TOLD, analysis_part, in_the_text, results
from paribus.report.paper.material import Material
from paribus.report.paper.method import method
from paribus.report.paper.related import related
from paribus.report.paper.tuning_part import in_the_tuning, tuning_part
from paribus.report.task_accuracy import task_contrast_table, task_table
from paribus.report.tuning_told import shared_table
from paribus.report.vocabulary import listed
from paribus.report.words import (
    clause,
    headline,
    missing_in_words,
    ratio_in_words,
    reference_name,
)
from paribus.statistics import DESCRIPTIVE_BELOW
from paribus.study import Study


def compose(material: Material) -> Document:
    """The whole paper."""
    study = material.study
    return Document(
        title=study.title or study.name,
        about=f"A paribus study: “{study.name}”, digest {study.digest[:12]}",
        abstract=[_abstract(material)],
        parts=[
            _introduction(material),
            related(material),
            method(material),
            *tuning_part(material),
            results(material),
            analysis_part(material),
            _limits(material),
            _recommendation(material),
            _reproducibility(material),
        ],
        appendix=_appendix(material),
    )


def _abstract(material: Material) -> Paragraph:
    study, facts = material.study, material.facts
    size = f" of {facts.parameters:,} parameters" if facts.parameters else ""
    text = f"{study.question} " if study.question else ""
    text += (
        f"We train {plural(len(study.arms), 'arm')} of a decoder-only Transformer{size} on "
        f"{facts.tokens:,} tokens each with {plural(len(study.seeds), 'paired seed')}"
        f"{_held(material)}"
        + (
            "."
            if material.analysis.unregistered
            else ", under endpoints, margins and thresholds that were registered before the first "
            "run."
        )
        + " "
    )
    text += headline(material.analysis, material.verdicts)
    ratios = [
        f"{ratio} with {material.called[verdict.arm]}"
        for verdict in material.verdicts[:3]
        if verdict.outcome != "INVALID"
        and (ratio := ratio_in_words(material.analysis.contrast(verdict.arm, verdict.metric)))
    ]
    if ratios:
        text += f" That is {' and '.join(ratios)}."
    missing = missing_in_words(material.analysis)
    if missing:
        text += f" The study is in progress: {missing}"
    return say(text)


HELD = {"initial values": "from the same initial values", "batches": "on the same batches"}


def _held(material: Material) -> str:
    """`, from the same initial values and on the same batches`: those that held everywhere."""
    states = material.control_states
    same = [words for name, words in HELD.items() if states.get(name) == {"held"}]
    return f", {' and '.join(same)}" if same else ""


def _introduction(material: Material) -> Part:
    study = material.study
    primary = material.analysis.primary.label
    ask = study.question or f"What do the arms of this study change in {primary}?"
    blocks: list[Block] = [
        say(
            f"{ask} An answer needs more than two training runs: whatever else differs between "
            "them, the seed to begin with, can make a difference as large as the one in question. "
            "Here each arm is a stated difference from one shared setting, and whether all else "
            "was equal is part of the record and not an assumption."
        ),
    ]
    if material.normalises_embeddings and (hypotheses := _hypotheses(material)):
        blocks.append(say(hypotheses))
    blocks.append(
        say(
            "What is reported here was computed from the records of the study alone: the "
            "registered comparison (",
            Ref("primary"),
            "), what happened while training, what the trained models look like, and a verdict by "
            "rules that were fixed before there was anything to judge. Results that settle nothing "
            "are reported as such.",
        )
    )
    return Part("Introduction", blocks)


def _hypotheses(material: Material) -> str:
    """The hypotheses that the rule's rows speak to, and where they are judged; or empty."""
    rows = rule_of(material.analysis).rows
    spoken = [name for name in HYPOTHESES if any(row.hypothesis == name for row in rows)]
    if not spoken:
        return ""
    text = "The decision table, which was fixed beforehand, speaks to these hypotheses. "
    text += " ".join(f"{name}: {HYPOTHESES[name].words}." for name in spoken)
    for metric in dict.fromkeys(HYPOTHESES[name].metric for name in spoken):
        if metric is not None:
            about = [name for name in spoken if HYPOTHESES[name].metric == metric]
            text += f" {_judged_on(material, listed(about), metric, HYPOTHESES[about[0]].of)}"
    return text


def _judged_on(material: Material, hypotheses: str, metric: str, of: str) -> str:
    """Where the hypotheses are judged that are stated `of` a metric, and what others speak of."""
    judged = {
        endpoint.metric: material.analysis.metrics[endpoint.metric].label
        for endpoint in material.study.judged
    }
    if metric not in judged:
        return (
            f"{hypotheses} are stated of {of}, which is not judged here: a verdict on "
            f"{listed(list(judged.values()))} speaks of that alone, and to neither of them."
        )
    own = judged.pop(metric)
    others = listed(list(judged.values()))
    also = f"; the verdict on {others} speaks of that alone" if judged else ""
    return f"{hypotheses} are stated of {of}, and judged on {own}{also}."


def _limits(material: Material) -> Part:
    study, facts = material.study, material.facts
    size = f"a model of {facts.parameters:,} parameters" if facts.parameters else "one model"
    limits = [
        f"This is {size}, trained for {facts.iterations:,} iterations on {facts.text}; nothing "
        "here says what would happen at another scale, with another budget or on another text.",
    ]
    if len(study.seeds) < DESCRIPTIVE_BELOW:
        limits.append(
            f"With {plural(len(study.seeds), 'seed')} there is too little to test anything, "
            "so differences are described."
        )
    else:
        limits.append(
            f"There are {len(study.seeds)} seeds. Intervals are as wide as so few pairs make them, "
            "and they speak of what a seed decides: initialization, order of the data"
            f"{' and dropout' if facts.training['dropout'] else ''}."
        )
    limits.append(_tuned(material))
    unbounded = [c for c in material.analysis.contrasts if c.primary and c.paired is None]
    if unbounded:
        limits.append(f"{len(unbounded)} primary contrasts could not be analysed.")
    if material.analysis.left_out:
        limits.append("Seeds were left out of comparisons; they are named in the results.")
    limits.append(
        f"{facts.held_out}; next-token accuracy and loss are no measure of what a model can be "
        "used for."
    )
    return Part("Limits", [say(" ".join(limits))])


def _tuned(material: Material) -> str:
    """What was tuned before the verdict, and what was not."""
    study, tuned = material.study, material.analysis.tuned
    if tuned is None or study.tuning is None:
        return (
            "No learning rate was tuned: every verdict holds "
            f"{_listed_rates(study)}. An arm may do better, or worse, at settings tuned for it."
        )
    keys = listed([key.rpartition(".")[2].replace("_", " ") for key in study.tuning.keys])
    return (
        f"Arms were tuned in {keys} alone, over {len(tuned.candidates)} candidates by "
        f"{tuned.metric.label} on {plural(len(study.tuning.seeds), 'seed')}. All else is as it was "
        "set for all of them, and may suit one arm better than another."
    )


def _listed_rates(study: Study) -> str:
    """`at the learning rate 3e-4`, or at those of all arms."""
    rates = {study.setting(arm).training.optimizer.learning_rate for arm in study.arms}
    words = [numbers.compact(rate) for rate in sorted(rates)]
    return f"at the learning rate{'s' if len(words) > 1 else ''} {listed(words)}"


def _recommendation(material: Material) -> Part:
    if not material.verdicts:
        return Part("Recommendation", [say("One arm alone: nothing is compared or recommended.")])
    groups: dict[tuple[str, str, str], list[Verdict]] = {}
    for verdict in material.verdicts[:MOST_TOLD]:
        lead = clause(material.analysis, verdict).lead
        groups.setdefault((verdict.metric, lead, verdict.row), []).append(verdict)
    table = rule_of(material.analysis).all_rows
    blocks: list[Block] = [
        say(_advice(material, lead, table[row], members))
        for (_, lead, row), members in groups.items()
    ]
    rest = material.verdicts[MOST_TOLD:]
    if rest:
        fired = {verdict.row for verdict in rest}
        rows = [row for row in table if row in fired]
        blocks.append(
            say(
                f"For the other {len(rest)} verdicts rows {', '.join(rows)} of the "
                "decision table fired; verdict.json has each in words."
            )
        )
    return Part("Recommendation", blocks)


UNDECIDED = ("DESCRIPTIVE ONLY", "INCONCLUSIVE")


def _advice(material: Material, lead: str, row: Row, members: list[Verdict]) -> str:
    """What the row that fired advises on the arms that it fired for."""
    whys = "; ".join(clause(material.analysis, verdict).why for verdict in members)
    text = f"{lead}: {whys}. {row.advice}"
    if len(material.study.judged) > 1:
        text = f"On {members[0].label}: {text}"
    if row.outcome in UNDECIDED:
        bases = {reference_name(material.study, verdict.reference) for verdict in members}
        text += f" Until then {' and '.join(sorted(bases))} stays."
    return text


def _reproducibility(material: Material) -> Part:
    study = material.study
    text = (
        f"The study's digest is {study.digest}. The file study.json beside this paper holds every "
        "setting; “paribus run study.json” trains all arms again, and “paribus report” draws the "
        "page and this paper from the records without training. On the same software and kind of "
        "CPU the records are equal byte for byte, timing apart. "
    )
    if material.facts.machine:
        text += f"{material.facts.machine} "
    text += "Tables are beside this paper as CSV, figures as SVG and PDF, and the text as data."
    return Part("Reproducibility", [say(text)])


def _appendix(material: Material) -> list[Part]:
    analysis = material.analysis
    estimates, tests = contrast_tables.estimates(analysis), contrast_tables.tests(analysis)
    shown = in_the_text(material) | in_the_tuning(material)
    others: list[Block] = [
        Picture(figure.name, figure.caption, figure.wide)
        for figure in material.figures
        if figure.name not in shown
    ]
    found = [
        Part("The decision rule", [Grid(tables.decision(analysis, material.verdicts))]),
        Part("Tuning", [Grid(table) for table in [shared_table(analysis)] if table]),
        Part("Every endpoint", [Grid(tables.endpoints(analysis))]),
        Part("Every contrast", [Grid(estimates), Grid(tests)]),
        Part("Tasks", [Grid(table) for table in _task_tables(material) if table]),
        Part("Looks and stages", [Grid(table) for table in _sampling_tables(material) if table]),
        Part("Every seed", [Grid(tables.trials(material.results, analysis))]),
        Part("Controls", [Grid(tables.controls(analysis))]),
        Part("Data", [Grid(table) for table in data_tables(material.results)]),
        Part("Further figures", others),
        Part("The study as run", _as_run(material.study)),
    ]
    return [part for part in (_filled(part) for part in found) if part.blocks]


def _as_run(study: Study) -> list[Block]:
    """Every key that somebody set: the others say nothing that the digest does not."""
    stated = flatten(study.model_dump(mode="json", exclude_defaults=True))
    told = ((key, str(value)) for key, value in stated.items() if value not in (None, {}, []))
    note = "Keys that are not at their default; study.json has all of them."
    return [say(note), Listing(tuple(told))]


def _filled(part: Part) -> Part:
    """Without tables that have no rows."""
    kept = [b for b in part.blocks if not isinstance(b, Grid) or b.table.rows]
    return Part(part.title, kept)


def _sampling_tables(material: Material) -> list[tables.Table | None]:
    return [sampling_table(material.analysis), looks_table(material.analysis)]


def _task_tables(material: Material) -> list[tables.Table | None]:
    return [task_contrast_table(material.analysis), task_table(material.results)]
