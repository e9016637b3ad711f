"""The paper's title, abstract and introduction: the questions, and the answers in a few lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from paribus.decision import HYPOTHESES, rule_of
from paribus.numbers import plural
from paribus.report.paper.abstract_of_several import abstract_of_several
from paribus.report.paper.document import Block, Items, Paragraph, Part, Ref, say
from paribus.report.paper.material import Material
from paribus.report.paper.said_once import grouped, said_once
from paribus.report.words import headline, listed, missing_in_words, ratio_in_words

HELD = {"initial values": "from the same initial values", "batches": "on the same batches"}
MOST_QUESTIONS = 8  # of a list; more fill a page and answer nothing


def title_of(studies: Sequence[Material]) -> str:
    """The study's; of several, what their titles begin with, or how many there are."""
    if len(studies) == 1:
        return studies[0].study.title or studies[0].study.name
    common = _common(studies)
    return f"{common}: {len(studies)} registered studies" if common else f"{len(studies)} studies"


def titles_of(studies: Sequence[Material]) -> dict[str, str]:
    """The title of every study by its name, without what all of them begin with."""
    common, found = _common(studies) if len(studies) > 1 else "", {}
    for one in studies:
        title = one.study.title or one.name
        rest = title[len(common) :] if common and title.startswith(common) else title
        rest = re.sub(r"^[\W_]+", "", rest)
        found[one.name] = rest[:1].upper() + rest[1:] if rest else title
    return found


def _common(studies: Sequence[Material]) -> str:
    """The words that more than half of the titles begin with, up to a colon, comma or dash; empty
    where there are none."""
    counts: Counter[str] = Counter()
    for one in studies:
        words = re.match(r"[^:,;–—]*", one.study.title)  # noqa: RUF001
        parts = words[0].split() if words else []
        counts.update(" ".join(parts[:n]) for n in range(1, len(parts) + 1))
    shared = [start for start, n in counts.items() if 2 * n > len(studies)]
    return max(shared, key=len, default="")


def abstract(studies: Sequence[Material], own_words: int = 0) -> Paragraph:
    """What was asked, done and found; of several studies within a journal's length, of which
    `own_words` of the authors are taken."""
    if len(studies) == 1:
        return _abstract(studies[0])
    return abstract_of_several(studies, own_words)


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


def _held(material: Material) -> str:
    """`, from the same initial values and on the same batches`: those that held everywhere."""
    states = material.control_states
    same = [words for name, words in HELD.items() if states.get(name) == {"held"}]
    return f", {' and '.join(same)}" if same else ""


def introduction(studies: Sequence[Material], titles: Mapping[str, str]) -> Part:
    """The questions, why they take more than two runs, and the hypotheses that rules speak to."""
    several = len(studies) > 1
    blocks: list[Block] = [
        *_asked(studies, titles),
        say(
            "An answer needs more than two training runs: whatever else "
            "differs between them, the seed to begin with, can make a difference as large as the "
            "one in question. Here each arm is a stated difference from one shared setting, and "
            "whether all else was equal is part of the record and not an assumption."
        ),
    ]
    told = {
        one.name: [say(_hypotheses(one, alone=not several)) if one.normalises_embeddings else say()]
        for one in studies
    }
    once = said_once(told)
    blocks += once.common
    blocks += grouped(once.own)
    blocks.append(
        say(
            "What is reported here was computed from the records of the "
            f"{'studies' if several else 'study'} alone: the registered comparison"
            f"{'s' if several else ''} (",
            Ref("answers" if several else "primary"),
            "), what happened while training, what the trained models look like, and a verdict by "
            f"rules that {_fixed(several=several)} Results that settle nothing are reported as "
            "such.",
        )
    )
    return Part("Introduction", blocks)


def _fixed(*, several: bool) -> str:
    """When rules were fixed, and of several studies what that does not say."""
    if not several:
        return "were registered before its first run."
    return (
        "each study registered before its own first trial. A registration speaks of its own study: "
        "what was known of others by then it does not say."
    )


def _asked(studies: Sequence[Material], titles: Mapping[str, str]) -> list[Block]:
    if len(studies) == 1:
        primary = studies[0].analysis.primary.label
        asked = studies[0].study.question
        return [say(asked or f"What do the arms of this study change in {primary}?")]
    # Two studies may ask the same: a second one at other values, or on another machine.
    asked = dict.fromkeys(one.study.question or f"{titles[one.name]}?" for one in studies)
    if len(asked) > MOST_QUESTIONS:
        n = len(asked)
        return [say(f"Of {n} questions each stands with its study, in a section or an appendix.")]
    questions = tuple(map(say, asked))
    return [say("The studies of this paper ask:"), Items(questions)]


def _hypotheses(material: Material, *, alone: bool) -> str:
    """The hypotheses that the rule's rows speak to, and of a single study where they are judged, as
    the results of several say; or empty."""
    rows = rule_of(material.analysis).rows
    spoken = [name for name in HYPOTHESES if any(row.hypothesis == name for row in rows)]
    if not spoken:
        return ""
    text = (
        "The decision table, which was fixed before the first trial, speaks to these hypotheses. "
    )
    text += " ".join(f"{name}: {HYPOTHESES[name].words}." for name in spoken)
    for metric in dict.fromkeys(HYPOTHESES[name].metric for name in spoken if alone):
        if metric is not None:
            about = [name for name in spoken if HYPOTHESES[name].metric == metric]
            text += f" {_judged_on(material, listed(about), metric, HYPOTHESES[about[0]].of)}"
    return text


def _judged_on(material: Material, hypotheses: str, metric: str, of: str) -> str:
    """Where the hypotheses are judged that are stated `of` a metric, and what others speak of."""
    on = {
        endpoint.metric: material.analysis.metrics[endpoint.metric].label
        for endpoint in material.study.judged
    }
    if metric not in on:
        return (
            f"{hypotheses} are stated of {of}, which is not judged here: a verdict on "
            f"{listed(list(on.values()))} speaks of that alone, and to neither of them."
        )
    own = on.pop(metric)
    others = listed(list(on.values()))
    also = f"; the verdict on {others} speaks of that alone" if on else ""
    return f"{hypotheses} are stated of {of}, and judged on {own}{also}."
