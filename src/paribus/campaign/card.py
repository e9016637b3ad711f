"""The card of a campaign: one idea, and what stands so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from paribus import numbers
from paribus.campaign.record import Campaign, Idea
from paribus.report.table_model import Table
from paribus.schema import stamped

DIGITS = 4
EXIT_KEPT, EXIT_NOT_KEPT = 0, 10


def status(campaign: Campaign) -> dict[str, Any]:
    """Return all that a campaign has registered and found, of JSON types."""
    ideas = list(campaign.ideas.values())
    return stamped(
        {
            "registered": campaign.registered.model_dump(mode="json"),
            "ideas": [vars(one) for one in ideas],
            "states": dict(Counter(one.state for one in ideas)),
            "tests": len(campaign.tested),
            "next_level": campaign.next_level,
            "ended": campaign.ended,
        }
    )


def exit_code(idea: Idea) -> int:
    """Return 0 for an idea that was kept, 10 for one that was not."""
    return EXIT_KEPT if idea.state == "kept" else EXIT_NOT_KEPT


def card(campaign: Campaign, idea: Idea | None = None) -> list[str]:
    """Return the lines of a card: `idea` where one is given, then what stands so far."""
    lines = [*_idea(campaign, idea), ""] if idea else []
    return lines + list(_standing(campaign))


def _idea(campaign: Campaign, idea: Idea) -> Iterator[str]:
    word = "KEPT" if idea.state == "kept" else idea.state.upper()
    yield f"{word}  {idea.name}" + (f": {idea.why}" if idea.why else "")
    one = campaign.registered
    length = f", {one.screen_iterations} iterations" if one.screen_iterations else ""
    if idea.screen:
        yield f"  screen   {_change(idea.screen)}, {idea.screen['n']} seeds{length} (no verdict)"
    if idea.confirm:
        yield f"  confirm  {_change(idea.confirm)}, {idea.confirm['n']} fresh seeds"
        p = "no p" if idea.confirm["p"] is None else f"p {numbers.p_equals(idea.confirm['p'])}"
        yield f"  {p}, and the level of this test is {_level(idea.level)}"


def _change(found: dict[str, Any]) -> str:
    if found["effect"] is None:
        return "no change known"
    if found.get("low") is None or found.get("high") is None:
        return numbers.signed(found["effect"], DIGITS)
    return numbers.delta(found["effect"], found["low"], found["high"], DIGITS)


def _level(level: float | None) -> str:
    return "none" if level is None else f"{level:.2g}"


def _standing(campaign: Campaign) -> Iterator[str]:
    ideas = list(campaign.ideas.values())
    counted = Counter(one.state for one in ideas)
    told = [f"{counted[state]} {state}" for state in dict.fromkeys(one.state for one in ideas)]
    yield f"{numbers.plural(len(ideas), 'idea')}" + (f": {', '.join(told)}." if told else ".")
    if kept := [one.name for one in ideas if one.state == "kept"]:
        yield f"Kept: {', '.join(kept)}."
    rule = campaign.registered
    yield (
        f"{numbers.plural(len(campaign.tested), 'test')} by LORD++ for a false discovery rate of "
        f"{rule.alpha:g}."
    )
    if campaign.ended is not None:
        yield from _ended(campaign.ended, campaign.study.primary.margin)
    elif campaign.is_ending:
        yield "It is ending: run `paribus campaign end` again."
    else:
        yield f"The next test has level {_level(campaign.next_level)}."


def _ended(found: dict[str, Any], margin: float | None) -> Iterator[str]:
    if not found["verdicts"]:
        yield "Ended: no idea stands; no sealed text was opened."
        return
    text = "the sealed test part, opened once" if found["opened"] else "the validation text again"
    yield f"Ended. The same models on {text}:"
    for name, one in found["verdicts"].items():
        inside = f"  (inside ±{margin:g})" if one["word"] == "SAME" and margin is not None else ""
        yield f"  {one['word']}  {name}  {_change(one)}{inside}"


def ideas_table(campaign: Campaign) -> Table:
    """Return every idea in the order of arrival, with its state and its measured change."""
    rows = [
        (
            idea.name,
            idea.state,
            _change(idea.screen) if idea.screen else "",
            _change(idea.confirm) if idea.confirm else "",
            numbers.p_or_blank(idea.confirm.get("p")),
            _level(idea.level) if idea.level is not None else "",
        )
        for idea in campaign.ideas.values()
    ]
    head = ("idea", "state", "screen", "confirmation", "p", "level")
    return Table("ideas", "", head, rows, frozenset({"idea", "state"}))
