"""What a campaign has on disk: what was registered, and every idea in the order of arrival.

<campaign>/
  campaign.json                 baseline, rule, seeds and screen, registered before the first idea
  sources/                      the files that the baseline names
  ideas.jsonl                   a line for each thing that happened
  ideas/<name>/screen/          a results folder: few seeds, perhaps fewer iterations
  ideas/<name>/confirm/         a results folder: the fresh seeds
  final/                        a results folder: those that stand, on the sealed test part
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from filelock import FileLock, Timeout
from pydantic import Field, ValidationError

from paribus.errors import ParibusError
from paribus.explain import explain
from paribus.json_lines import JsonLines
from paribus.results.formats import write_json
from paribus.results.registration import keep_sources
from paribus.results.store import CAMPAIGN, IDEAS
from paribus.schema import unstamped
from paribus.statistics import DESCRIPTIVE_BELOW, Lord, StatisticsError
from paribus.study import Study, load_study
from paribus.study.base import Spec
from paribus.study.load import parse_study
from paribus.study.null_study import shortened
from paribus.study.study import override
from paribus.study.trust import require_trust
from paribus.study.tuning_study import NOTHING_SAID
from paribus.untrusted_io import is_regular, read_json

FILE, LINES, LOCK = CAMPAIGN, "ideas.jsonl", ".lock"
ITERATIONS = "training.iterations"

# The states of an idea.
State = Literal["screening", "confirming", "kept", "not kept", "dropped", "failed", "given up"]
OPEN = ("screening", "confirming")


class Registered(Spec):
    """campaign.json: what is fixed before the first idea."""

    name: str
    folder: str
    """Where relative paths of the study start: the folder of its file."""
    study: dict[str, Any]
    """The baseline's study."""
    alpha: float
    wealth: float
    sequence: Literal["power", "slow"] = "power"
    screen_seeds: Annotated[tuple[int, ...], Field(strict=False)]
    screen_iterations: int | None
    """Iterations of the screen's trials; None where they are as long as those that confirm."""
    confirm_seeds: Annotated[tuple[int, ...], Field(strict=False)]
    registered_at: str


@dataclass
class Idea:
    """An idea: what it sets, its state, and what the screen and the confirmation measured.

    `level` is the level of its test, once it has passed the screen.
    """

    name: str
    arm: dict[str, Any]
    state: State = "screening"
    why: str = ""
    screen: dict[str, Any] = field(default_factory=dict)
    confirm: dict[str, Any] = field(default_factory=dict)
    level: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether it is neither kept nor anything else yet."""
        return self.state in OPEN


@dataclass
class Campaign:
    """A campaign as its folder has it."""

    path: Path
    registered: Registered

    @cached_property
    def study(self) -> Study:
        """The baseline's study, without any idea."""
        folder = Path(self.registered.folder)
        study = parse_study(self.registered.study, folder=folder, label=FILE)
        require_trust(study)
        return study

    @property
    def rule(self) -> Lord:
        """The rule that gives each test its level."""
        one = self.registered
        return Lord(one.alpha, one.wealth, one.sequence)

    def study_of(
        self, name: str, arms: Mapping[str, Mapping[str, Any]], *, screen: bool = False
    ) -> Study:
        """Return the study of the baseline and `arms`, on the seeds of a stage."""
        one, base = self.registered, self.study
        table = base.model_dump()
        table["arms"] = {base.baseline: table["arms"][base.baseline], **arms}
        table["seeds"] = list(one.screen_seeds if screen else one.confirm_seeds)
        table["name"] = shortened(f"{one.name}-{name}", "")
        if screen and one.screen_iterations is not None:
            override(table, ITERATIONS, one.screen_iterations, base.format)
        return parse_study(table, folder=base.folder, label=name)

    def home(self, idea: str) -> Path:
        """Return where the results folders of an idea are."""
        return self.path / IDEAS / idea

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines of ideas.jsonl. Raises ParibusError."""
        return self._lines.read()

    def add(self, event: str, **about: Any) -> None:
        """Append a line to ideas.jsonl and sync it to disk."""
        with self._lines.appending() as (_, append):
            append({"event": event, "at": now(), **about})

    @property
    def _lines(self) -> JsonLines:
        return JsonLines(self.path / LINES, "restore it, or make its folder writable")

    @property
    def ideas(self) -> dict[str, Idea]:
        """Every idea in the order of arrival, by name."""
        found: dict[str, Idea] = {}
        for event in self.events:
            name = str(event.get("idea"))
            if event["event"] == "begun":
                found[name] = Idea(name, event["arm"])
            elif name in found:
                values = {key: event[key] for key in event.keys() & Idea.__dataclass_fields__}
                found[name].__dict__.update(values)
        return found

    @property
    def ended(self) -> dict[str, Any] | None:
        """What the end found; None before it."""
        return next((one for one in self.events if one["event"] == "ended"), None)

    @property
    def is_ending(self) -> bool:
        """Whether no idea can be tried any more."""
        return any(one["event"] in ("ending", "ended") for one in self.events)

    @property
    def tested(self) -> list[Idea]:
        """Those that came to a test, in their order: each has a place in the rule."""
        return [one for one in self.ideas.values() if one.level is not None]

    @property
    def next_level(self) -> float:
        """The level at which the next idea that passes the screen is tested."""
        return self.rule.next_level(one.state == "kept" for one in self.tested)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep every other process from adding to the campaign."""
        lock = FileLock(self.path / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ParibusError(f"another idea is being tried in {self.path}; wait for it") from None
        try:
            yield
        finally:
            lock.release()


def now() -> str:
    """Return the time in UTC, to a second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def begin(
    path: Path,
    baseline: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    alpha: float = 0.05,
    wealth: float | None = None,
    screen_seeds: tuple[int, ...] | None = None,
    screen_iterations: int | None = None,
    confirm_seeds: tuple[int, ...] | None = None,
) -> Campaign:
    """Register a campaign in a new folder; returns it. Raises ParibusError on bad input.

    Args:
        path: a folder that is not there, or empty.
        baseline: a study: its baseline is that of all ideas, and its other arms are left out.
        overrides: dotted keys of the study.
        alpha: the false discovery rate of the ideas that are kept.
        wealth: of LORD++ at the first test; half of `alpha` by default.
        screen_seeds: two by default, that follow on those of the study.
        screen_iterations: of the screen's trials; as many as the study has by default.
        confirm_seeds: those of the study by default.
    """
    if path.exists() and not path.is_dir():
        raise ParibusError(f"{path} is a file; choose a new folder")
    if path.is_dir() and any(path.iterdir()):
        raise ParibusError(f"{path} is not empty; choose a new folder for a campaign")
    study = load_study(baseline, overrides)
    require_trust(study)
    _require_fit(study)
    confirm = confirm_seeds or study.seeds
    screen = screen_seeds or (max(confirm) + 1, max(confirm) + 2)
    if both := sorted(set(screen) & set(confirm)):
        raise ParibusError(f"seed {both[0]} screens and confirms; a confirmation needs fresh seeds")
    if len(confirm) < DESCRIPTIVE_BELOW:
        raise ParibusError(
            f"{len(confirm)} seeds confirm, and fewer than {DESCRIPTIVE_BELOW} are described, not "
            "tested; give more in `seeds` of the study, or with --confirm-seeds"
        )
    try:
        rule = Lord(alpha, alpha / 2 if wealth is None else wealth)
    except StatisticsError as error:
        raise ParibusError(str(error)) from None
    table: dict[str, Any] = study.model_dump() | NOTHING_SAID | {"seeds": list(confirm)}
    arms: Any = table["arms"]
    table["arms"] = {study.baseline: arms[study.baseline] | {"reference": None}}
    base = parse_study(table, folder=study.folder, label=study.name)
    registered = Registered(
        name=path.resolve().name,
        folder=str(study.folder.resolve()),
        study=base.model_dump(mode="json"),
        alpha=rule.alpha,
        wealth=rule.wealth,
        sequence=rule.sequence,
        screen_seeds=tuple(screen),
        screen_iterations=screen_iterations,
        confirm_seeds=tuple(confirm),
        registered_at=now(),
    )
    made = Campaign(path, registered)
    made.study_of("screen", {}, screen=True)  # refuse an impossible screen before writing anything
    keep_sources(base, path)
    write_json(path / FILE, registered.model_dump(mode="json"))
    return made


def _require_fit(study: Study) -> None:
    if study.tuning is not None:
        raise ParibusError(
            f"'{study.name}' tunes its arms, and the ideas of a campaign are tried as they are; "
            "leave [tuning] out, and let an idea set its own learning rate"
        )
    if study.plan is not None:
        raise ParibusError(
            f"'{study.name}' has looks; a campaign has two stages of its own: list the seeds"
        )
    if len(study.judged) > 1:
        named = ", ".join(f"'{one.metric}'" for one in study.judged)
        raise ParibusError(f"{named} are primary; a campaign is judged on one: mark one as primary")


def open_campaign(path: Path) -> Campaign:
    """Return the campaign that a folder holds. Raises ParibusError where it holds none."""
    if not is_regular(path / FILE):
        raise ParibusError(
            f"{path} holds no campaign; `paribus campaign new {path} --baseline STUDY` begins one"
        )
    table = unstamped(read_json(path / FILE), str(path / FILE))
    try:
        return Campaign(path, Registered.model_validate(table))
    except ValidationError as error:
        raise ParibusError(f"{path / FILE}: {explain(error, Registered)}; restore it") from None
