"""What a campaign says: the card of an idea, what stands so far as data, and the page of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from paribus import numbers
from paribus.campaign.record import FILE, Campaign, Idea
from paribus.files import write_bytes
from paribus.migrations import stamped

PAGE = "campaign.html"
DIGITS = 4
EXIT_KEPT, EXIT_NOT_KEPT = 0, 10


def status(campaign: Campaign) -> dict[str, Any]:
    """Return all that a campaign has registered and found, of JSON types."""
    ideas = list(campaign.ideas.values())
    return stamped(
        {
            "registered": campaign.registered.model_dump(mode="json"),
            "ideas": [{k: v for k, v in vars(one).items() if k != "number"} for one in ideas],
            "states": dict(Counter(one.state for one in ideas)),
            "tests": len(campaign.tested),
            "next_level": campaign.next_level,
            "trained": sum(one.trained for one in ideas),
            "shared": sum(one.shared for one in ideas),
            "correlation": campaign.correlation,
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
    yield f"  {numbers.plural(idea.trained, 'trial')} trained, {idea.shared} shared"


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
    trained, shared = (sum(getattr(one, key) for one in ideas) for key in ("trained", "shared"))
    if shared:
        yield f"{trained} trials trained; {shared} of the baseline shared between ideas."
    if (r := campaign.correlation) is not None:
        yield f"Their changes correlate by {r:.2f} over seeds, as they share a baseline."
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


def page(campaign: Campaign) -> Path:
    """Write the page of all ideas, tried and dropped; returns its path."""
    heads = ("", "idea", "sets", "outcome", "screen", "confirmation", "p", "level", "shared")
    rows = []
    for one in campaign.ideas.values():
        cells = (
            str(one.number),
            one.name,
            "; ".join(f"{key} = {value}" for key, value in one.arm["set"].items()),
            one.state + (f": {one.why}" if one.why else ""),
            _change(one.screen) if one.screen else "",
            _change(one.confirm) if one.confirm else "",
            numbers.p_or_blank(one.confirm.get("p")),
            _level(one.level) if one.level is not None else "",
            f"{one.shared} of {one.shared + one.trained}",
        )
        kind = ' class="kept"' if one.state == "kept" else ""
        rows.append(f"<tr{kind}>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    name = escape(campaign.registered.name)
    question = escape(campaign.study.question)
    standing = "".join(f"<p>{escape(line.strip())}</p>" for line in card(campaign))
    content = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{name}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem;
 padding: 0 1rem }}
table {{ border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums }}
th, td {{ text-align: left; padding: .35rem .7rem; border-bottom: 1px solid #8884;
 vertical-align: top }}
.kept {{ font-weight: 600; background: #4a94 }}
p {{ margin: .3rem 0 }} div {{ overflow-x: auto; margin-top: 1.5rem }}
</style></head><body><h1>{name}</h1><p>{question}</p>{standing}
<div><table><thead><tr>{"".join(f"<th>{head}</th>" for head in heads)}</tr></thead>
<tbody>{"".join(rows)}</tbody></table></div>
<p>Changes against the same baseline at the same seed. A screen is no verdict; a confirmation is
of fresh seeds. Registered in {FILE} on {escape(campaign.registered.registered_at)}.</p>
</body></html>
"""
    path = campaign.path / PAGE
    write_bytes(path, content.encode())
    return path
