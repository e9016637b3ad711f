"""What a campaign prints: its ideas, and what stands so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from paribus import numbers
from paribus.campaign.record import Campaign, Idea
from paribus.report.table_model import Table
from paribus.schema import stamped

DIGITS = 4


def status(campaign: Campaign) -> dict[str, Any]:
    """Return everything that a campaign has recorded, as JSON types."""
    ideas = list(campaign.ideas.values())
    return stamped(
        {
            "registered": campaign.registered.model_dump(mode="json"),
            "ideas": [vars(idea) for idea in ideas],
            "states": dict(Counter(idea.state for idea in ideas)),
            "tests": len(campaign.tested),
            "next_level": campaign.next_level,
            "ended": campaign.ended,
        }
    )


def ideas_table(ideas: list[Idea]) -> Table:
    """Return a row for each idea: its state, and what its two stages measured."""
    rows = [
        (
            idea.name,
            idea.state,
            _change(idea.screen),
            _change(idea.confirm),
            numbers.p_or_blank(idea.confirm.get("p")),
            "" if idea.level is None else f"{idea.level:.2g}",
            idea.why,
        )
        for idea in ideas
    ]
    head = ("idea", "state", "screen", "confirmation", "p", "level", "why")
    return Table("ideas", "", head, rows, frozenset({"idea", "state", "why"}))


def standing(campaign: Campaign) -> Iterator[str]:
    """Yield how many ideas have which state, the rule, and the verdicts once it has ended."""
    ideas = list(campaign.ideas.values())
    states = Counter(idea.state for idea in ideas)
    counts = ", ".join(f"{n} {state}" for state, n in states.items())
    yield numbers.plural(len(ideas), "idea") + (f": {counts}." if counts else ".")
    yield (
        f"{numbers.plural(len(campaign.tested), 'test')} by LORD++ for a false discovery rate of "
        f"{campaign.registered.alpha:g}."
    )
    if campaign.ended is None:
        if campaign.is_ending:
            yield "It is ending: run `paribus campaign end` again."
        else:
            yield f"The next test has level {campaign.next_level:.2g}."
    elif not campaign.ended["verdicts"]:
        yield "Ended: no idea was kept, and no sealed text was opened."
    else:
        opened = campaign.ended["opened"]
        text = "the sealed test part, opened once" if opened else "the validation text again"
        yield f"Ended. The same models on {text}:"
        for name, verdict in campaign.ended["verdicts"].items():
            yield f"  {verdict['word']}  {name}  {_change(verdict)}"


def _change(measured: dict[str, Any]) -> str:
    if measured.get("effect") is None:
        return ""
    if measured.get("low") is None or measured.get("high") is None:
        return numbers.signed(measured["effect"], DIGITS)
    return numbers.delta(measured["effect"], measured["low"], measured["high"], DIGITS)
