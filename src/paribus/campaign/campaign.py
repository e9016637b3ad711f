"""Campaigns: sequential tests of ideas against a common baseline.

`begin` registers the baseline and the testing procedure. `try_idea` screens an idea on a few seeds
and confirms it on new seeds. `end` evaluates the kept ideas once on the sealed test split.

<campaign>/
  campaign.json                 baseline, false discovery rate, ideas with results, final verdicts
  ideas/<name>/screen/          results folder of the screening seeds
  ideas/<name>/confirm/         results folder of the confirmation seeds
  final/                        results folder of the kept ideas on the sealed test split

Baseline trials are trained only once: completed trials of other ideas with the same settings, seed
and custom code are copied.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, PrivateAttr

from paribus.analysis import analyse
from paribus.decision import Verdicts, decide
from paribus.errors import ParibusError, nearest
from paribus.files import whole_folder
from paribus.report.cautions import invalid_text
from paribus.results import ResultsFolder, load_results
from paribus.results.formats import read_as, write_json
from paribus.results.registration import utc_now
from paribus.results.store import CAMPAIGN, IDEAS, run_lock
from paribus.results.trial_folder import TrialFolder
from paribus.runs.run import register, run
from paribus.statistics import DESCRIPTIVE_BELOW, Lord
from paribus.study import Study, load_study, parse_study, require_trust
from paribus.study.base import shortened
from paribus.study.custom_code import own_digests
from paribus.study.trainer import STACKED
from paribus.untrusted_io import is_regular

MEASURED = ("word", "effect", "low", "high", "p", "adjusted_p")  # what is kept of a verdict


class Idea(BaseModel):
    """Idea of a campaign: overrides, state, and results of screening and confirmation.

    `level` is the significance level of the confirmatory test, assigned when screening is passed.
    """

    overrides: dict[str, Any]
    state: Literal["screening", "confirming", "kept", "not kept", "dropped"] = "screening"
    why: str = ""
    screen: dict[str, Any] = {}
    confirm: dict[str, Any] = {}
    level: float | None = None


class Campaign(BaseModel):
    """State of a campaign. Fields up to `registered_at` do not change after registration.

    Attributes:
        folder: folder against which relative paths in the study are resolved.
        baseline: content of the study, with the baseline as its only arm.
        alpha: false discovery rate.
        ideas: ideas keyed by name, in the order in which they were tried.
        tested: names of ideas that passed screening, in the order of their tests.
        verdicts: final verdicts keyed by idea, or None before the campaign has ended.
    """

    model_config = ConfigDict(extra="forbid")

    name: str
    folder: str
    baseline: dict[str, Any]
    alpha: float
    registered_at: str
    ideas: dict[str, Idea] = {}
    tested: list[str] = []
    verdicts: dict[str, dict[str, Any]] | None = None

    _path: Path = PrivateAttr()
    _run: Any = PrivateAttr()
    _register: Any = PrivateAttr()

    @property
    def path(self) -> Path:
        """Folder of the campaign."""
        return self._path

    @property
    def is_over(self) -> bool:
        """True after `end` was called, even if interrupted, so that no idea can be tried."""
        return self.verdicts is not None or self.results_of("final").path.exists()

    @cached_property
    def study(self) -> Study:
        """Study with the baseline as its only arm."""
        study = parse_study(self.baseline, folder=Path(self.folder), label=CAMPAIGN)
        require_trust(study)
        return study

    def study_of(
        self, name: str, ideas: Mapping[str, Mapping[str, Any]], *, screen: bool = False
    ) -> Study:
        """Create the study that compares ideas with the baseline in one stage.

        Args:
            name: name of the stage.
            ideas: overrides keyed by idea.
            screen: whether to use two screening seeds instead of the study's own seeds.
        """
        table = self.study.model_dump()
        table["arms"] |= {idea: {"set": dict(overrides)} for idea, overrides in ideas.items()}
        table["name"] = shortened(f"{self.name}-{name}")
        if screen:
            last = max(self.study.seeds)
            table["seeds"] = [last + 1, last + 2]
        return parse_study(table, folder=self.study.folder, label=name)

    def results_of(self, stage: str, idea: str = "") -> ResultsFolder:
        """Return the results folder of one stage of an idea, or of the final study."""
        return ResultsFolder(self.path / IDEAS / idea / stage if idea else self.path / stage)

    def save(self) -> None:
        """Write campaign.json."""
        write_json(self.path / CAMPAIGN, self.model_dump(mode="json"))

    @property
    def next_level(self) -> float:
        """Significance level of the next test, which counts unfinished ideas as rejected."""
        kept = [self.ideas[name].state == "kept" for name in self.tested]
        return Lord(self.alpha, self.alpha / 2).next_level(kept)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the campaign against other processes, and reload campaign.json."""
        with run_lock(self.path):
            vars(self).update(vars(open_campaign(self.path)))
            yield


def begin(
    path: Path,
    baseline: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    alpha: float = 0.05,
) -> Campaign:
    """Register a campaign in a new folder. Raises ParibusError if an argument is invalid.

    Args:
        path: folder that does not exist or is empty.
        baseline: name or path of a study, whose baseline arm is used. Other arms are ignored.
        overrides: changes to the study, keyed by dotted key.
        alpha: false discovery rate among the ideas that are kept.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ParibusError(
            f"{path} is not an empty folder; choose a new or empty folder", code="exists"
        )
    study = load_study(baseline, overrides)
    require_trust(study)
    if not 0 < alpha < 1:
        raise ParibusError(f"alpha = {alpha} must be between 0 and 1 (a false discovery rate)")
    problems = {
        "tunes its arms, which a campaign cannot do; remove [tuning]": study.tuning,
        "has interim analyses (looks), which a campaign cannot use; list the seeds": study.plan,
        "has several primary endpoints, but a campaign needs one; keep only one": study.judged[1:],
        "has too few seeds for a test; list five or more": len(study.seeds) < DESCRIPTIVE_BELOW,
    }
    for problem, applies in problems.items():
        if applies:
            raise ParibusError(f"baseline study '{study.name}' {problem}")
    table: dict[str, Any] = study.model_dump() | {"hypotheses": (), "interactions": {}}
    table["arms"] = {study.baseline: table["arms"][study.baseline] | {"reference": None}}
    base = parse_study(table, folder=study.folder, label=study.name)
    campaign = Campaign(
        name=path.resolve().name,
        folder=str(study.folder.resolve()),
        baseline=base.model_dump(mode="json"),
        alpha=alpha,
        registered_at=utc_now(),
    )
    campaign._path, campaign._run, campaign._register = path, run, register
    campaign.save()
    return campaign


def open_campaign(path: Path, run: Any = run, register: Any = register) -> Campaign:
    """Load the campaign in a folder. Raises ParibusError if none exists.

    `run` and `register` must have the signatures of `paribus.run` and `paribus.register`.
    """
    if not is_regular(path / CAMPAIGN):
        raise ParibusError(
            f"{path} is not a campaign; create one with `paribus campaign new {path} --baseline "
            "STUDY`",
            code="missing",
        )
    campaign = read_as(Campaign, path / CAMPAIGN)
    campaign._path, campaign._run, campaign._register = path, run, register
    return campaign


def try_idea(campaign: Campaign, name: str, overrides: Mapping[str, Any] | None = None) -> Idea:
    """Screen an idea and, if it passes, confirm it. An interrupted idea is resumed.

    Args:
        campaign: the campaign.
        name: name of the idea and of its arm.
        overrides: values keyed by dotted key, or None to resume the idea with this name.

    Raises ParibusError if a trial fails, or if an argument is invalid; invalid ideas are not
    recorded.
    """
    with campaign.lock():
        _require_new(campaign, name, overrides)
        idea = campaign.ideas.get(name) or Idea(overrides=dict(overrides or {}))
        confirm = campaign.study_of(f"{name}-confirm", {name: idea.overrides})
        screen = campaign.study_of(f"{name}-screen", {name: idea.overrides}, screen=True)
        if idea.state == "screening":
            folder = campaign.results_of("screen", name)
            if name not in campaign.ideas:
                shutil.rmtree(folder.path.parent, ignore_errors=True)  # left by a killed process
                # This tries its code, too: a mistake there is not counted.
                campaign._register(screen, folder.path)
                campaign.ideas[name] = idea
                campaign.save()
            idea.screen, idea.why = _measured(campaign, screen, folder)
            if idea.why:
                idea.state = "dropped"
            else:
                idea.state, idea.level = "confirming", campaign.next_level
                campaign.tested.append(name)
            campaign.save()
        if idea.state == "confirming":
            folder = campaign.results_of("confirm", name)
            idea.confirm, idea.why = _measured(campaign, confirm, folder)
            p, level = idea.confirm["p"], idea.level or 0.0
            if not idea.why and (p is None or p > level):
                idea.why = "p exceeds the significance level"
            idea.state = "not kept" if idea.why else "kept"
            campaign.save()
    return idea


def _require_new(campaign: Campaign, name: str, overrides: Mapping[str, Any] | None) -> None:
    """Raise ParibusError if an idea can neither be started nor resumed."""
    why = ""
    same = [known for known, idea in campaign.ideas.items() if idea.overrides == overrides]
    if campaign.is_over:
        why = f"{campaign.path} has ended; create another campaign"
    elif name in campaign.ideas:
        if overrides is not None and name not in same:
            why = f"idea '{name}' was tried with different overrides; choose another name"
    elif not overrides:
        hint = nearest(name, list(campaign.ideas))
        why = f"unknown idea '{name}'; correct it ({hint}), or add --set key=value to try it"
    elif name == campaign.study.baseline:
        why = f"'{name}' is the name of the baseline; choose another name"
    elif same:
        why = f"idea '{same[0]}' has the same overrides; change them, or resume that idea"
    if why:
        raise ParibusError(why)


def end(campaign: Campaign) -> None:
    """End a campaign: judge the kept ideas on the sealed test split, which is used only once.

    No further ideas can be tried.
    """
    with campaign.lock():
        if campaign.verdicts is not None:
            return
        kept = {name: i.overrides for name, i in campaign.ideas.items() if i.state == "kept"}
        verdicts: dict[str, dict[str, Any]] = {}
        if kept:
            study, folder = campaign.study_of("final", kept), campaign.results_of("final")
            decided = _decided(campaign, study, folder, is_final=True)
            verdicts = {v.arm: {key: getattr(v, key) for key in MEASURED} for v in decided}
        campaign.verdicts = verdicts
        campaign.save()


def _decided(
    campaign: Campaign, study: Study, folder: ResultsFolder, *, is_final: bool = False
) -> Verdicts:
    """Run a study, reusing trials of other ideas, and return its verdicts.

    The final study trains nothing; it evaluates the trials on the sealed test split.
    """
    missing = [trial for trial in study.trials if not folder.trial(*trial).is_finished]
    sources = {trial: _same_trial(campaign, study, *trial) for trial in missing}
    if is_final and None in sources.values():
        raise ParibusError(
            f"{campaign.path} has a trial whose settings or code changed; restore its records and "
            "the custom code",
            code="changed",
        )
    if any(sources.values()) and not folder.exists:
        campaign._register(study, folder.path)
    for trial, source in sources.items():
        if source is not None:
            with whole_folder(folder.trial(*trial).path) as copy:
                shutil.copytree(source.path, copy, dirs_exist_ok=True)
    options = {"open_test": is_final} if study.trainer == STACKED else {}
    campaign._run(study, folder.path, **options)
    return decide(analyse(load_results(folder.path)))


def _measured(
    campaign: Campaign, study: Study, folder: ResultsFolder
) -> tuple[dict[str, Any], str]:
    """Run a stage, and return its verdict as a dict and why the idea fails ("" if it passes)."""
    decided = _decided(campaign, study, folder)
    (verdict,), analysis = decided, decided.analysis
    contrast, why = analysis.contrast(verdict.arm), invalid_text(analysis, verdict)
    if verdict.evidence.invalid == "untested":  # the test part stays sealed until the end
        broken = [f"{control.name}: {control.detail}" for control in analysis.broken(verdict.arm)]
        why = next(iter(broken), "")
    if not why and (n_lost := len(study.seeds) - len(contrast.seeds)):
        reason = next((pair.why for pair in analysis.left_out), "diverged")
        why = f"{n_lost} of {len(study.seeds)} pairs cannot be compared: {reason}"
    gain = (verdict.effect or 0.0) * (1 if contrast.declared.better == "higher" else -1)
    if not why and gain <= 0:
        why = contrast.why_not or "not better"
    return {key: getattr(verdict, key) for key in MEASURED}, why


def _same_trial(campaign: Campaign, study: Study, arm: str, seed: int) -> TrialFolder | None:
    """Find a finished trial of any idea with the same settings and custom code, or return None."""
    setting = study.setting(arm)
    wanted = setting.model_dump(mode="json")
    for idea in campaign.ideas:
        for stage in ("screen", "confirm"):
            trial = campaign.results_of(stage, idea).trial(arm, seed)
            record = trial.read_json("trial.json") if trial.is_finished else {"setting": None}
            code = own_digests(setting, study.folder) if record.get("own_modules") else {}
            if record["setting"] == wanted and record.get("own_modules", {}) == code:
                return trial
    return None
