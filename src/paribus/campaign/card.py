"""Print a campaign: its ideas and their verdicts."""

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
            *(idea.name, idea.state, _change(idea.screen), _change(idea.confirm)),
            numbers.p_or_blank(idea.confirm.get("p")),
            "" if idea.level is None else f"{idea.level:.2g}",
            idea.why,
        )
        for idea in ideas
    ]
    head = ("idea", "state", "screen", "confirmation", "p", "level", "why")
    return Table("ideas", "", head, rows)


def standing(campaign: Campaign) -> Iterator[str]:
    """Yield how many ideas have which state, the rule, and the verdicts once it has ended."""
    states = Counter(idea.state for idea in campaign.ideas.values())
    counts = ", ".join(f"{n} {state}" for state, n in states.items())
    yield numbers.plural(states.total(), "idea") + (f": {counts}." if counts else ".")
    yield (
        f"{numbers.plural(len(campaign.tested), 'test')} by LORD++ for a false discovery rate of "
        f"{campaign.registered.alpha:g}."
    )
    if campaign.ended:
        opened = campaign.ended["opened"]
        text = "the sealed test part, opened once" if opened else "the validation text again"
        verdicts = campaign.ended["verdicts"]
        nothing = "no idea was kept, and no sealed text was opened."
        yield f"Ended. The same models on {text}:" if verdicts else f"Ended: {nothing}"
        for name, verdict in verdicts.items():
            yield f"  {verdict['word']}  {name}  {_change(verdict)}"
    elif campaign.is_ending:
        yield "It is ending: run `paribus campaign end` again."
    else:
        yield f"The next test has level {campaign.next_level:.2g}."


def _change(measured: dict[str, Any]) -> str:
    effect, low, high = (measured.get(key) for key in ("effect", "low", "high"))
    if effect is None:
        return ""
    if low is None or high is None:
        return numbers.signed(effect, DIGITS)
    return numbers.delta(effect, low, high, DIGITS)
