"""Record of a campaign on disk: its registration, and every idea in order of arrival.

<campaign>/
  campaign.json                 baseline, rule and seeds; the ideas, what they measured, the end
  ideas/<name>/screen/          a results folder: few seeds, perhaps fewer iterations
  ideas/<name>/confirm/         a results folder: the fresh seeds
  final/                        a results folder: the kept ideas on the sealed test part
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from paribus import numbers
from paribus.errors import ParibusError
from paribus.report.table_model import Table
from paribus.results.formats import read_as, write_json
from paribus.results.registration import utc_now
from paribus.results.store import CAMPAIGN, IDEAS, TEST_PART
from paribus.schema import stamped
from paribus.statistics import DESCRIPTIVE_BELOW, Lord
from paribus.study import Study, load_study, parse_study, require_trust
from paribus.study.allowed_text import shortened
from paribus.study.study import override
from paribus.study.tuning_study import NOTHING_SAID
from paribus.untrusted_io import is_regular


class Idea(BaseModel):
    """An idea: its overrides, its state, and the results of the screen and the confirmation.

    `level` is the significance level of its test, set when it passes the screen.
    """

    overrides: dict[str, Any]
    state: Literal["screening", "confirming", "kept", "not kept", "dropped"] = "screening"
    why: str = ""
    screen: dict[str, Any] = {}
    confirm: dict[str, Any] = {}
    level: float | None = None


class Campaign(BaseModel):
    """A campaign and its folder. Everything up to `registered_at` is fixed before the first idea.

    Attributes:
        folder: the folder at which relative paths of the study start.
        baseline: the study of the baseline alone.
        alpha: the false discovery rate.
        screen_iterations: iterations of the screen's trials; None for the study's number.
        ideas: by name, in the order of arrival.
        tested: the ideas that passed the screen, in the order in which they were given a level.
        verdicts: final verdicts by idea; None before the campaign has ended.
    """

    model_config = ConfigDict(extra="forbid")

    name: str
    folder: str
    baseline: dict[str, Any]
    alpha: float
    screen_seeds: Annotated[tuple[int, ...], Field(min_length=1)]
    screen_iterations: int | None
    registered_at: str
    ideas: dict[str, Idea] = {}
    tested: list[str] = []
    verdicts: dict[str, dict[str, Any]] | None = None

    _path: Path = PrivateAttr()

    @property
    def path(self) -> Path:
        """The folder of the campaign."""
        return self._path

    @property
    def is_over(self) -> bool:
        """True once ending has begun; no further idea can be tried."""
        return self.verdicts is not None or self.results_of("final").exists()

    @cached_property
    def study(self) -> Study:
        """The study of the baseline alone."""
        study = parse_study(self.baseline, folder=Path(self.folder), label=CAMPAIGN)
        require_trust(study)
        return study

    def study_of(
        self, name: str, ideas: Mapping[str, Mapping[str, Any]], *, screen: bool = False
    ) -> Study:
        """Return the study that compares `ideas` (overrides by name) with the baseline, for a
        stage."""
        base, table = self.study, self.study.model_dump()
        table["arms"] |= {idea: {"set": dict(overrides)} for idea, overrides in ideas.items()}
        table["name"] = shortened(f"{self.name}-{name}")
        if screen:
            table["seeds"] = list(self.screen_seeds)
            if self.screen_iterations is not None:
                override(table, "training.iterations", self.screen_iterations, base.format)
        return parse_study(table, folder=base.folder, label=name)

    def results_of(self, stage: str, idea: str = "") -> Path:
        """Return the results folder of an idea's stage, or of the final study."""
        return self.path / IDEAS / idea / stage if idea else self.path / stage

    def save(self) -> None:
        """Write campaign.json."""
        write_json(self.path / CAMPAIGN, self.model_dump(mode="json"))

    @property
    def next_level(self) -> float:
        """Significance level of the next test; an unfinished idea counts as not kept."""
        kept = [self.ideas[name].state == "kept" for name in self.tested]
        return Lord(self.alpha, self.alpha / 2).next_level(kept)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the campaign against other processes, and reload what they have added."""
        try:
            with FileLock(self.path / ".lock", timeout=0):
                vars(self).update(vars(open_campaign(self.path)))
                yield
        except Timeout:
            raise ParibusError(
                f"another idea is being tried in {self.path}; wait for it", code="in_use"
            ) from None


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
    if not 0 < alpha < 1:
        raise ParibusError(f"alpha = {alpha} is not a false discovery rate; use 0 < alpha < 1")
    problems = {
        "tunes its arms; remove [tuning], and let an idea set its own values": study.tuning,
        "has looks; list the seeds": study.plan,
        "has several primary endpoints, and a campaign has one; mark one": study.judged[1:],
        "has too few seeds to be tested; list five or more": len(study.seeds) < DESCRIPTIVE_BELOW,
        "has a seed of the screen; a confirmation needs fresh seeds": {*screen} & {*study.seeds},
    }
    for problem, applies in problems.items():
        if applies:
            raise ParibusError(f"'{study.name}' {problem}")
    table: dict[str, Any] = study.model_dump() | NOTHING_SAID
    table["arms"] = {study.baseline: table["arms"][study.baseline] | {"reference": None}}
    base = parse_study(table, folder=study.folder, label=study.name)
    campaign = Campaign(
        name=path.resolve().name,
        folder=str(study.folder.resolve()),
        baseline=base.model_dump(mode="json"),
        alpha=alpha,
        screen_seeds=screen,
        screen_iterations=screen_iterations,
        registered_at=utc_now(),
    )
    campaign._path = path
    campaign.study_of("screen", {}, screen=True)  # refuse an impossible screen
    campaign.save()
    return campaign


def open_campaign(path: Path) -> Campaign:
    """Return the campaign in a folder. Raises ParibusError without one."""
    if not is_regular(path / CAMPAIGN):
        raise ParibusError(
            f"{path} holds no campaign; `paribus campaign new {path} --baseline STUDY` begins one",
            code="missing",
        )
    campaign = read_as(Campaign, path / CAMPAIGN)
    campaign._path = path
    return campaign


def status(campaign: Campaign) -> dict[str, Any]:
    """Return the whole record of a campaign, as JSON types."""
    record = campaign.model_dump(mode="json")
    record["states"] = dict(Counter(idea.state for idea in campaign.ideas.values()))
    record["next_level"] = campaign.next_level
    record["opened"] = is_regular(campaign.results_of("final") / TEST_PART)
    return stamped(record)


def ideas_table(ideas: Mapping[str, Idea]) -> Table:
    """Return a table with a row for each idea: its state, and the results of its two stages."""
    rows = [
        (
            *(name, idea.state, _change(idea.screen), _change(idea.confirm)),
            numbers.p_or_blank(idea.confirm.get("p")),
            "" if idea.level is None else f"{idea.level:.2g}",
            idea.why,
        )
        for name, idea in ideas.items()
    ]
    head = ("idea", "state", "screen", "confirmation", "p", "level", "why")
    return Table("ideas", "", head, rows)


def standing(campaign: Campaign) -> str:
    """Summarise a campaign: numbers of ideas and tests, and the next level or how it ended."""
    n_ideas, n_tests = len(campaign.ideas), len(campaign.tested)
    text = (
        f"{numbers.plural(n_ideas, 'idea')}, {numbers.plural(n_tests, 'test')} by LORD++ for a "
        f"false discovery rate of {campaign.alpha:g}."
    )
    if campaign.verdicts is not None:
        verdicts = campaign.verdicts.items()
        words = ", ".join(f"{v['word']} {name} {_change(v)}" for name, v in verdicts)
        return f"{text} Ended: {words or 'nothing was kept'}."
    if campaign.is_over:
        return f"{text} It is ending: run `paribus campaign end` again."
    return f"{text} Next level: {campaign.next_level:.2g}."


def _change(measured: Mapping[str, Any]) -> str:
    effect, low, high = (measured.get(key) for key in ("effect", "low", "high"))
    if effect is None or low is None or high is None:
        return "" if effect is None else numbers.signed(effect, 4)
    return numbers.delta(effect, low, high, 4)
