"""A campaign on disk: its registration, and every idea in the order of arrival.

<campaign>/
  campaign.json                 baseline, rule and seeds, registered before the first idea
  sources/                      the files that the baseline names
  ideas.jsonl                   a line for each event
  ideas/<name>/screen/          a results folder: few seeds, perhaps fewer iterations
  ideas/<name>/confirm/         a results folder: the fresh seeds
  final/                        a results folder: the kept ideas on the sealed test part
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from filelock import FileLock, Timeout
from pydantic import Field

from paribus import numbers
from paribus.errors import ParibusError
from paribus.json_lines import JsonLines
from paribus.report.table_model import Table
from paribus.results.formats import read_as, write_json
from paribus.results.registration import keep_sources, utc_now
from paribus.results.store import CAMPAIGN, IDEAS
from paribus.schema import stamped
from paribus.statistics import DESCRIPTIVE_BELOW, Lord, StatisticsError
from paribus.study import Study, load_study
from paribus.study.allowed_text import shortened
from paribus.study.base import Spec
from paribus.study.load import parse_study
from paribus.study.study import override
from paribus.study.trust import require_trust
from paribus.study.tuning_study import NOTHING_SAID
from paribus.untrusted_io import is_regular

Stage = Literal["screen", "confirm"]
State = Literal["screening", "confirming", "kept", "not kept", "dropped", "failed"]


class Registered(Spec):
    """campaign.json: what is fixed before the first idea.

    Attributes:
        folder: where relative paths of the study start.
        study: the study of the baseline alone.
        alpha: the false discovery rate.
        screen_iterations: of the screen's trials; None if they are as long as the study's.
    """

    name: str
    folder: str
    study: dict[str, Any]
    alpha: float
    screen_seeds: Annotated[tuple[int, ...], Field(strict=False)]
    screen_iterations: int | None
    registered_at: str


@dataclass
class Idea:
    """An idea: its overrides, its state, and what the screen and the confirmation measured.

    `level` is the level of its test, once it has passed the screen.
    """

    name: str
    overrides: dict[str, Any]
    state: State = "screening"
    why: str = ""
    screen: dict[str, Any] = field(default_factory=dict)
    confirm: dict[str, Any] = field(default_factory=dict)
    level: float | None = None


@dataclass
class Campaign:
    """A campaign and its folder."""

    path: Path
    registered: Registered

    @cached_property
    def study(self) -> Study:
        """The study of the baseline alone."""
        folder = Path(self.registered.folder)
        study = parse_study(self.registered.study, folder=folder, label=CAMPAIGN)
        require_trust(study)
        return study

    def study_of(
        self, name: str, ideas: Mapping[str, Mapping[str, Any]], *, screen: bool = False
    ) -> Study:
        """Return the study of the baseline and `ideas` (overrides by name) at a stage."""
        base, table = self.study, self.study.model_dump()
        arms = {idea: {"set": dict(overrides)} for idea, overrides in ideas.items()}
        table["arms"] = {base.baseline: table["arms"][base.baseline], **arms}
        table["name"] = shortened(f"{self.registered.name}-{name}", "")
        if screen:
            table["seeds"] = list(self.registered.screen_seeds)
            if (iterations := self.registered.screen_iterations) is not None:
                override(table, "training.iterations", iterations, base.format)
        return parse_study(table, folder=base.folder, label=name)

    def results_of(self, idea: str, stage: Stage) -> Path:
        """Return the results folder of an idea's stage."""
        return self.path / IDEAS / idea / stage

    @property
    def log(self) -> JsonLines:
        """ideas.jsonl, a line for each event."""
        return JsonLines(self.path / "ideas.jsonl", "restore it, or make its folder writable")

    def add(self, event: str, **values: Any) -> None:
        """Append a line to ideas.jsonl and sync it to disk."""
        with self.log.appending() as (_, append):
            append({"event": event, "at": utc_now(), **values})

    @property
    def ideas(self) -> dict[str, Idea]:
        """Every idea by name, in the order of arrival."""
        ideas: dict[str, Idea] = {}
        for event in self.log.read():
            name = str(event.get("idea"))
            if event["event"] == "begun":
                ideas[name] = Idea(name, event["overrides"])
            elif name in ideas:
                values = {key: event[key] for key in event.keys() & Idea.__dataclass_fields__}
                vars(ideas[name]).update(values)
        return ideas

    @property
    def ended(self) -> dict[str, Any] | None:
        """The event that ended the campaign; None before it."""
        return next((event for event in self.log.read() if event["event"] == "ended"), None)

    @property
    def is_ending(self) -> bool:
        """True once the campaign has ended."""
        return any(event["event"] in ("ending", "ended") for event in self.log.read())

    @property
    def tested(self) -> list[Idea]:
        """The ideas that passed the screen, in the order in which they took a level."""
        ideas = self.ideas
        return [ideas[event["idea"]] for event in self.log.read() if "level" in event]

    @property
    def next_level(self) -> float:
        """The level of the next test. An idea that is not finished counts as not kept."""
        alpha = self.registered.alpha
        return Lord(alpha, alpha / 2).next_level([idea.state == "kept" for idea in self.tested])

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep every other process from adding to the campaign."""
        try:
            lock = FileLock(self.path / ".lock").acquire(timeout=0)
        except Timeout:
            raise ParibusError(
                f"another idea is being tried in {self.path}; wait for it", code="in_use"
            ) from None
        with lock:
            yield


def begin(
    path: Path,
    baseline: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    alpha: float = 0.05,
    screen_seeds: tuple[int, ...] | None = None,
    screen_iterations: int | None = None,
) -> Campaign:
    """Register a campaign in a new folder. Raises ParibusError on bad input.

    Args:
        path: a folder that does not exist, or is empty.
        baseline: a study. Its baseline is compared with every idea; its other arms are ignored.
        overrides: dotted keys of the study.
        alpha: the false discovery rate of the ideas that are kept.
        screen_seeds: by default the two numbers after the study's seeds.
        screen_iterations: iterations of the screen's trials; by default the study's.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ParibusError(
            f"{path} is not an empty folder; choose a new folder for a campaign", code="exists"
        )
    study = load_study(baseline, overrides)
    require_trust(study)
    screen = screen_seeds or (max(study.seeds) + 1, max(study.seeds) + 2)
    if problem := _problem(study, screen, alpha):
        raise ParibusError(problem)
    table: dict[str, Any] = study.model_dump() | NOTHING_SAID
    table["arms"] = {study.baseline: table["arms"][study.baseline] | {"reference": None}}
    base = parse_study(table, folder=study.folder, label=study.name)
    registered = Registered(
        name=path.resolve().name,
        folder=str(study.folder.resolve()),
        study=base.model_dump(mode="json"),
        alpha=alpha,
        screen_seeds=tuple(screen),
        screen_iterations=screen_iterations,
        registered_at=utc_now(),
    )
    campaign = Campaign(path, registered)
    campaign.study_of("screen", {}, screen=True)  # refuse an impossible screen
    keep_sources(base, path)
    write_json(path / CAMPAIGN, registered.model_dump(mode="json"))
    return campaign


def _problem(study: Study, screen: Collection[int], alpha: float) -> str:
    """Return why a study cannot be the baseline of a campaign; empty where it can."""
    shared = sorted(set(screen) & set(study.seeds))
    try:
        Lord(alpha, alpha / 2)
    except StatisticsError as error:
        return str(error)
    if study.tuning is not None:
        return f"'{study.name}' tunes its arms; remove [tuning], and let an idea set its own values"
    if study.plan is not None:
        return f"'{study.name}' has looks, and a campaign has none; list the seeds"
    if len(study.judged) > 1:
        return f"'{study.name}' has several primary endpoints, and a campaign has one; mark one"
    if len(study.seeds) < DESCRIPTIVE_BELOW:
        return (
            f"{len(study.seeds)} seeds confirm, and fewer than {DESCRIPTIVE_BELOW} are described, "
            "not tested; list more seeds in the study, or use --set seeds=[...]"
        )
    if shared:
        return f"seed {shared[0]} screens and confirms; a confirmation needs fresh seeds"
    return ""


def open_campaign(path: Path) -> Campaign:
    """Return the campaign in a folder. Raises ParibusError without one."""
    if not is_regular(path / CAMPAIGN):
        raise ParibusError(
            f"{path} holds no campaign; `paribus campaign new {path} --baseline STUDY` begins one",
            code="missing",
        )
    return Campaign(path, read_as(Registered, path / CAMPAIGN))


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
        return numbers.signed(effect, 4)
    return numbers.delta(effect, low, high, 4)
