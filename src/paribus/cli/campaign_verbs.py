"""Commands for campaigns: `paribus campaign new`, `try`, `status` and `end`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from paribus.cli.options import (
    CREW,
    Crew,
    Json,
    Overrides,
    StudyName,
    console,
    parse_overrides,
    print_stamped,
    show,
    table,
)

if TYPE_CHECKING:
    from paribus.campaign import Campaign, Idea
    from paribus.study import Study

EXIT_NOT_KEPT = 10
campaign = App(name="campaign", help="Test many ideas against one baseline.")
CampaignPath = Annotated[Path, Parameter(help="The folder of a campaign.")]


@campaign.command(name="new")
def new(
    folder: Path,
    *,
    baseline: StudyName,
    alpha: float = 0.05,
    set_: Overrides = None,
) -> None:
    """Register a campaign: the baseline and the test that will be applied to each idea.

    Args:
        folder: The folder to create; it must be new or empty.
        alpha: The false discovery rate among accepted ideas.
    """
    from paribus.campaign import begin

    campaign = begin(
        folder,
        baseline,
        parse_overrides(set_),
        alpha=alpha,
    )
    _show(campaign, {})


@campaign.command(name="try")
def try_(
    folder: CampaignPath,
    name: str,
    *,
    set_: Overrides = None,
    where: Crew = CREW,
    json: Json = False,
) -> int:
    """Screen an idea on a few seeds and, if it passes, confirm it on new seeds.

    The exit code is 0 if the idea is kept, and 10 if it is rejected.

    Args:
        name: The name of the idea; the rules for arm names apply.
    """
    from paribus.campaign import try_idea

    campaign = _opened(folder, where, json=json)
    idea = try_idea(campaign, name, parse_overrides(set_) or None)
    _show(campaign, {name: idea}, json=json)
    return 0 if idea.state == "kept" else EXIT_NOT_KEPT


@campaign.command(name="status")
def status(folder: CampaignPath, *, json: Json = False) -> None:
    """List all ideas and the decisions made so far."""
    from paribus.campaign import open_campaign

    campaign = open_campaign(folder)
    _show(campaign, campaign.ideas, json=json)


@campaign.command(name="end")
def end(folder: CampaignPath, *, where: Crew = CREW, json: Json = False) -> None:
    """End a campaign: evaluate the kept ideas once on the sealed test split."""
    from paribus.campaign import end as end_campaign

    campaign = _opened(folder, where, json=json)
    end_campaign(campaign)
    _show(campaign, campaign.ideas, json=json)


def _opened(folder: Path, where: Crew, *, json: bool) -> Campaign:
    """Open a campaign that runs its studies with the options `where` and prints progress."""
    from paribus.campaign import open_campaign
    from paribus.cli.commands import train
    from paribus.runs.run import register as register_study

    def register(study: Study, folder: Path) -> Path:
        options = where.options(study)
        del options["workers"]
        return register_study(study, folder, **options)

    console.stderr = console.stderr or json
    return open_campaign(folder, partial(train, where=where), register)


def _show(campaign: Campaign, ideas: dict[str, Idea], *, json: bool = False) -> None:
    from paribus.numbers import p_value, plural
    from paribus.report.render import fill

    if json:
        print_stamped(campaign.model_dump(mode="json") | {"next_level": campaign.next_level})
        return
    head = ("idea", "state", "screen", "confirmation", "p", "level", "why")
    rows = [
        (
            *(name, idea.state, _change(idea.screen), _change(idea.confirm)),
            p_value(idea.confirm.get("p")),
            "" if idea.level is None else f"{idea.level:.2g}",
            idea.why,
        )
        for name, idea in ideas.items()
    ]
    if rows:
        show(table("ideas", head, rows))
    show(fill("campaign.txt", campaign=campaign, change=_change, plural=plural))


def _change(measured: dict[str, Any]) -> str:
    from paribus.numbers import delta

    if not measured:
        return ""
    return delta(measured["effect"], measured["low"], measured["high"], 4)
