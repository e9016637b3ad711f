"""The verbs of a campaign: `paribus campaign new`, `try`, `give-up`, `status` and `end`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.markup import escape

from paribus.cli.limits import Limits
from paribus.cli.options import (
    HERE,
    Json,
    Overrides,
    StudyName,
    Where,
    Workers,
    console,
    print_json,
    show,
)
from paribus.errors import ParibusError, require_positive

if TYPE_CHECKING:
    from paribus.campaign import Campaign, Idea
    from paribus.results import Results
    from paribus.study import Study

CampaignPath = Annotated[Path, Parameter(help="The folder of a campaign.")]
IdeaName = Annotated[str, Parameter(help="What the idea is called, as an arm of a study.")]
Seeds = Annotated[list[int] | None, Parameter(negative=(), consume_multiple=True)]


def new(
    folder: Annotated[Path, Parameter(help="The folder to make; new or empty.")],
    *,
    baseline: StudyName,
    alpha: Annotated[
        float, Parameter(help="The false discovery rate of the ideas that are kept.")
    ] = 0.05,
    wealth: Annotated[
        float | None, Parameter(help="Of LORD++ at the first test; by default alpha / 2.")
    ] = None,
    screen_seeds: Annotated[
        Seeds, Parameter(help="Seeds of the screen; by default two that follow on the study's.")
    ] = None,
    screen_iterations: Annotated[
        int | None,
        Parameter(help="Iterations of the screen's trials; by default the study's."),
    ] = None,
    confirm_seeds: Annotated[
        Seeds, Parameter(help="Fresh seeds that confirm; by default those of the study.")
    ] = None,
    set_: Overrides = None,
    json: Json = False,
) -> None:
    """Register a campaign: a baseline, and how every idea will be tested against it."""
    from paribus.campaign import begin
    from paribus.study import parse_override

    changes = dict(parse_override(text) for text in set_ or ())
    made = begin(
        folder,
        baseline,
        changes,
        alpha=alpha,
        wealth=wealth,
        screen_seeds=tuple(screen_seeds) if screen_seeds else None,
        screen_iterations=screen_iterations,
        confirm_seeds=tuple(confirm_seeds) if confirm_seeds else None,
    )
    _tell(made, None, json=json)


def try_(
    folder: CampaignPath,
    name: IdeaName,
    *,
    set_: Annotated[
        list[str] | None,
        Parameter(name="--set", negative=(), help="What the idea sets: key=value."),
    ] = None,
    arm: Annotated[
        Path | None,
        Parameter(help='Or a TOML file, as an arm of a study: set."model.mlp.ratio" = 8.'),
    ] = None,
    workers: Workers = None,
    where: Where = HERE,
    limits: Limits | None = None,
    json: Json = False,
) -> int:
    """Screen an idea and, where it passes, confirm it on fresh seeds; exit code 0 if it is kept,
    10 if not."""
    from paribus.campaign import open_campaign, try_idea
    from paribus.campaign.card import exit_code

    campaign = open_campaign(folder)
    idea = _arm(set_, arm)
    limits = limits or Limits()
    console.stderr = console.stderr or json
    with limits.clock():
        found = try_idea(campaign, name, idea, **_runners(workers, where, limits))
    _tell(campaign, found, json=json)
    return exit_code(found)


def give_up(folder: CampaignPath, name: IdeaName, *, json: Json = False) -> None:
    """Close an idea that was begun and not finished; it stays counted."""
    from paribus.campaign import give_up as close
    from paribus.campaign import open_campaign

    campaign = open_campaign(folder)
    _tell(campaign, close(campaign, name), json=json)


def status(folder: CampaignPath, *, json: Json = False) -> None:
    """Show what stands so far."""
    from paribus.campaign import open_campaign

    _tell(open_campaign(folder), None, json=json)


def end(
    folder: CampaignPath,
    *,
    workers: Workers = None,
    where: Where = HERE,
    limits: Limits | None = None,
    json: Json = False,
) -> None:
    """Judge the ideas that stand on the sealed test part, opened once; no idea follows."""
    from paribus.campaign import end as judge
    from paribus.campaign import open_campaign

    campaign = open_campaign(folder)
    limits = limits or Limits()
    console.stderr = console.stderr or json
    with limits.clock():
        judge(campaign, **_runners(workers, where, limits))
    _tell(campaign, None, json=json)


def _arm(overrides: list[str] | None, file: Path | None) -> dict[str, Any] | None:
    """Return what an idea sets, as an arm; None where the command does not say."""
    from paribus.study import parse_override
    from paribus.untrusted_io import STUDY_BYTES, parse_toml, read_text

    found: dict[str, Any] = {}
    if file is not None:
        missing = f"no file {file}; --arm takes the path of a TOML file"
        found = parse_toml(read_text(file, STUDY_BYTES, missing=missing), file.name)
        known = {"set", "title", "description"}
        if unknown := sorted(found.keys() - known):
            raise ParibusError(
                f"{file.name}: unknown key '{unknown[0]}'; known: set, title, description"
            )
        if not isinstance(found.get("set"), dict):
            raise ParibusError(f'{file.name} sets nothing; write set."key" = value')
    if overrides:
        found["set"] = found.get("set", {}) | dict(parse_override(text) for text in overrides)
    return found or None


def _runners(workers: int | None, where: Where, limits: Limits) -> dict[str, Any]:
    require_positive(workers=workers)
    from paribus.cli.commands import options_of, train
    from paribus.trainers import register as register_study

    def run(study: Study, folder: Path, *, open_test: bool = True) -> Results:
        return train(study, folder, workers, where, None, limits=limits, open_test=open_test)

    def register(study: Study, folder: Path) -> Path:
        return register_study(study, folder, **options_of(study, where))

    return {"run": run, "register": register}


def _tell(campaign: Campaign, idea: Idea | None, *, json: bool) -> None:
    from paribus.campaign import card, ideas_table
    from paribus.campaign import status as as_json

    if json:
        print_json(as_json(campaign))
        return
    for line in card(campaign, idea):
        show(escape(line))
    if idea is None and campaign.ideas:
        show(ideas_table(campaign))
