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
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from filelock import FileLock, Timeout
from pydantic import Field

from paribus.errors import ParibusError
from paribus.json_lines import JsonLines
from paribus.results.formats import read_as, write_json
from paribus.results.registration import keep_sources
from paribus.results.store import CAMPAIGN, IDEAS
from paribus.statistics import DESCRIPTIVE_BELOW, Lord, StatisticsError
from paribus.study import Study, load_study
from paribus.study.base import Spec
from paribus.study.load import parse_study
from paribus.study.null_study import shortened
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
    def _lines(self) -> JsonLines:
        return JsonLines(self.path / "ideas.jsonl", "restore it, or make its folder writable")

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines of ideas.jsonl. Raises ParibusError."""
        return self._lines.read()

    def add(self, event: str, **values: Any) -> None:
        """Append a line to ideas.jsonl and sync it to disk."""
        with self._lines.appending() as (_, append):
            append({"event": event, "at": _now(), **values})

    @property
    def ideas(self) -> dict[str, Idea]:
        """Every idea by name, in the order of arrival."""
        ideas: dict[str, Idea] = {}
        for event in self.events:
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
        return next((event for event in self.events if event["event"] == "ended"), None)

    @property
    def is_ending(self) -> bool:
        """Whether the campaign has ended."""
        return any(event["event"] in ("ending", "ended") for event in self.events)

    @property
    def tested(self) -> list[Idea]:
        """The ideas that passed the screen, in the order in which they took a level."""
        ideas = self.ideas
        return [ideas[event["idea"]] for event in self.events if "level" in event]

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
    for problem in _problems(study, screen, alpha):
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
        registered_at=_now(),
    )
    campaign = Campaign(path, registered)
    campaign.study_of("screen", {}, screen=True)  # refuse an impossible screen
    keep_sources(base, path)
    write_json(path / CAMPAIGN, registered.model_dump(mode="json"))
    return campaign


def _problems(study: Study, screen: Collection[int], alpha: float) -> Iterator[str]:
    """Yield why a study cannot be the baseline of a campaign, a line each."""
    if study.tuning is not None:
        yield (
            f"'{study.name}' tunes its arms; remove [tuning], and let an idea set its own "
            "learning rate"
        )
    if study.plan is not None:
        yield f"'{study.name}' has looks, and a campaign has none; list the seeds"
    if len(study.judged) > 1:
        primary = ", ".join(f"'{endpoint.metric}'" for endpoint in study.judged)
        yield f"{primary} are primary, and a campaign has one; mark one endpoint as primary"
    if len(study.seeds) < DESCRIPTIVE_BELOW:
        yield (
            f"{len(study.seeds)} seeds confirm, and fewer than {DESCRIPTIVE_BELOW} are described, "
            "not tested; list more seeds in the study, or use --set seeds=[...]"
        )
    if shared := sorted(set(screen) & set(study.seeds)):
        yield f"seed {shared[0]} screens and confirms; a confirmation needs fresh seeds"
    try:
        Lord(alpha, alpha / 2)
    except StatisticsError as error:
        yield str(error)


def open_campaign(path: Path) -> Campaign:
    """Return the campaign in a folder. Raises ParibusError if there is none."""
    if not is_regular(path / CAMPAIGN):
        raise ParibusError(
            f"{path} holds no campaign; `paribus campaign new {path} --baseline STUDY` begins one",
            code="missing",
        )
    return Campaign(path, read_as(Registered, path / CAMPAIGN))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
