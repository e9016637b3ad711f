"""Trying an idea: the screen, then the confirmation on fresh seeds; and the end of a campaign.

Trials of the baseline are trained once for all ideas: a sealed trial of another idea with the same
setting, seed and custom code is copied.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paribus.analysis import Analysis, analyse
from paribus.campaign.record import Campaign, Idea
from paribus.decision import Verdicts, decide, verdict_record
from paribus.errors import ParibusError, nearest
from paribus.files import whole_folder
from paribus.results import Results, ResultsFolder, load_results
from paribus.results.formats import write_json
from paribus.results.opened_texts import note
from paribus.results.store import answering
from paribus.results.trial_folder import TrialFolder
from paribus.study import Study
from paribus.study.custom_code import own_digests
from paribus.study.trainer import STACKED
from paribus.trainers import register, run

Run = Callable[..., Results]
Register = Callable[[Study, Path], Path]


def try_idea(
    campaign: Campaign,
    name: str,
    arm: Mapping[str, Any] | None = None,
    *,
    run: Run = run,
    register: Register = register,
) -> Idea:
    """Screen an idea and, where it passes, confirm it; goes on with one that was interrupted.

    Args:
        campaign: what `begin` or `open_campaign` gives.
        name: of the idea, as that of an arm.
        arm: what it sets, as an arm of a study: {"set": {dotted key: value}}; None goes on with
            the idea of that name.
        run: what trains a study, as `paribus.run`; `register` as `paribus.register`.

    Raises ParibusError on bad input, with nothing recorded, and where a trial fails.
    """
    with campaign.lock():
        work = _Work(campaign, run, register)
        idea = _taken_up(work, name, arm)
        if idea.state == "screening":
            _screen(work, idea)
            idea = campaign.ideas[name]
        if idea.state == "confirming":
            _confirm(work, idea)
    return campaign.ideas[name]


def give_up(campaign: Campaign, name: str) -> Idea:
    """Close an idea that was begun and not finished. One that came to its test keeps its place in
    the rule, as a test that found nothing."""
    with campaign.lock():
        idea = _known(campaign, name)
        if not idea.is_open:
            raise ParibusError(f"idea '{name}' is closed: {idea.state}; nothing is left to give up")
        campaign.add("given up", idea=name, state="given up", why="given up")
    return campaign.ideas[name]


def end(campaign: Campaign, *, run: Run = run, register: Register = register) -> dict[str, Any]:
    """Judge the ideas that stand on the sealed test part, which is opened once; returns what was
    found. From then on no idea can be tried."""
    with campaign.lock():
        if campaign.ended is not None:
            return campaign.ended
        ideas = campaign.ideas
        if left := [one.name for one in ideas.values() if one.is_open]:
            raise ParibusError(_unfinished(campaign, left[0]))
        kept = [one for one in ideas.values() if one.state == "kept"]
        seals = campaign.study.format.seals_test(campaign.study)
        if not campaign.is_ending:
            campaign.add("ending", kept=[one.name for one in kept])
        verdicts: dict[str, Any] = {}
        opened = False
        if kept:
            study = campaign.study_of("final", {one.name: one.arm for one in kept})
            work = _Work(campaign, run, register)
            analysis = work.analysed(study, campaign.path / "final", is_final=True)
            opened = bool(seals)
            found = decide(analysis)
            _leave(campaign.path / "final", analysis, found)
            for one in found:
                about = {"word": one.word, "effect": one.effect, "low": one.low, "high": one.high}
                verdicts[one.arm] = about | {"p": one.p, "adjusted_p": one.adjusted_p}
        campaign.add("ended", opened=opened, verdicts=verdicts)
    found = campaign.ended
    assert found is not None
    return found


def _leave(final: Path, analysis: Analysis, verdicts: Verdicts) -> None:
    """Write analysis.json and verdict.json of the end, and tell the ledger of the verdict."""
    with answering(final):
        write_json(final / "analysis.json", analysis.to_dict())
        write_json(final / "verdict.json", verdict_record(analysis, verdicts))
        note(ResultsFolder(final), is_known=True)


def _known(campaign: Campaign, name: str) -> Idea:
    ideas = campaign.ideas
    if name not in ideas:
        raise ParibusError(f"no idea '{name}' in {campaign.path}: {nearest(name, ideas)}")
    return ideas[name]


def _taken_up(work: _Work, name: str, arm: Mapping[str, Any] | None) -> Idea:
    """Return the idea that goes on, or a new one, which is counted from here on."""
    campaign = work.campaign
    if campaign.is_ending:
        raise ParibusError(f"{campaign.path} has ended; begin another campaign in a new folder")
    ideas = campaign.ideas
    others = [one for one in ideas.values() if one.is_open and one.name != name]
    if others:
        raise ParibusError(_unfinished(campaign, others[0].name))
    if name in ideas:
        there = ideas[name]
        if arm is not None and arm != there.arm:
            raise ParibusError(
                f"idea '{name}' was tried with {_told(there.arm)}; give this one another name"
            )
        if there.state == "screening":
            _register_screen(work, name, there.arm)
        return there
    if not arm or not arm.get("set"):
        _known(campaign, name) if arm is None and ideas else None
        raise ParibusError(f"idea '{name}' sets nothing; give --set key=value or --arm FILE")
    if name == campaign.study.baseline:
        raise ParibusError(f"'{name}' is the baseline; give the idea another name")
    same = [one.name for one in ideas.values() if one.arm["set"] == arm["set"]]
    if same:
        raise ParibusError(f"idea '{same[0]}' was tried with the same; it is not tested twice")
    for screen in (True, False):  # what is no arm is refused here, and not counted
        campaign.study_of(name, {name: arm}, screen=screen).setting(name)
    shutil.rmtree(campaign.home(name), ignore_errors=True)  # of one killed before it was counted
    try:
        _register_screen(work, name, arm)
    except BaseException:
        shutil.rmtree(campaign.home(name), ignore_errors=True)
        raise
    campaign.add("begun", idea=name, arm=dict(arm))
    return campaign.ideas[name]


def _register_screen(work: _Work, name: str, arm: Mapping[str, Any]) -> None:
    """Register the screen, which tries the arm's own code and where it would be trained: a slip
    there is no idea that failed."""
    study = work.campaign.study_of(f"{name}-screen", {name: arm}, screen=True)
    work.register(study, work.campaign.home(name) / "screen")


def _unfinished(campaign: Campaign, name: str) -> str:
    return (
        f"idea '{name}' is not finished: `paribus campaign try {campaign.path} {name}` goes on "
        f"with it, `paribus campaign give-up {campaign.path} {name}` closes it"
    )


def _told(arm: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in arm["set"].items())


def _screen(work: _Work, idea: Idea) -> None:
    """Look at few seeds: passed where the mean change is for the better. This is no verdict."""
    campaign = work.campaign
    study = campaign.study_of(f"{idea.name}-screen", {idea.name: idea.arm}, screen=True)
    try:
        analysis = work.analysed(study, campaign.home(idea.name) / "screen")
    except ParibusError as error:
        campaign.add("failed", idea=idea.name, state="failed", why=str(error))
        raise
    found = _measured(analysis, idea.name)
    about: dict[str, Any] = {"idea": idea.name, "screen": found}
    why = found["why"] or ("" if found["better"] else "not better at the seeds of the screen")
    if why:
        campaign.add("screened", state="dropped", why=why, **about)
    else:
        campaign.add("screened", state="confirming", level=campaign.next_level, **about)


def _confirm(work: _Work, idea: Idea) -> None:
    """Test on fresh seeds, at the level of the rule; kept is what is better by it."""
    campaign = work.campaign
    study = campaign.study_of(f"{idea.name}-confirm", {idea.name: idea.arm})
    analysis = work.analysed(study, campaign.home(idea.name) / "confirm")
    found = _measured(analysis, idea.name)
    # A p for the better alone: the other direction, and what cannot be judged, finds nothing.
    p = found["p"] if found["better"] and not found["why"] else None
    assert idea.level is not None
    kept = p is not None and p <= idea.level
    why = found["why"] or ("" if found["better"] else "not better at the fresh seeds")
    campaign.add(
        "confirmed",
        idea=idea.name,
        confirm=found,
        state="kept" if kept else "not kept",
        why="" if kept else why or "p above the level",
    )


def _measured(analysis: Analysis, arm: str) -> dict[str, Any]:
    """Return the change of `arm` on the primary endpoint, and why it cannot be judged, if so."""
    contrast = analysis.contrast(arm)
    says = contrast.decided
    n_seeds, missing = len(analysis.study.seeds), analysis.missing_of(contrast)
    lost = n_seeds - len(contrast.seeds)
    broken = analysis.broken(arm)
    why = analysis.unregistered or (f"{missing[0]} is missing" if missing else "")
    why = why or (f"{broken[0].name}: {broken[0].detail}" if broken else "")
    if lost and not why:
        reasons = [one.why for one in analysis.left_out if one.arm == arm]
        why = f"{lost} of {n_seeds} pairs cannot be compared: {next(iter(reasons), 'diverged')}"
    why = why or (contrast.why_not if says is None else "")
    if says is None:
        return {"n": len(contrast.seeds), "better": False, "why": why, "effect": None, "p": None}
    sign = 1 if contrast.declared.better == "higher" else -1
    tested = contrast.tested
    return {
        "n": says.n,
        "better": sign * says.mean > 0,
        "why": why,
        "effect": says.mean,
        "low": says.interval.low if tested else None,
        "high": says.interval.high if tested else None,
        "p": contrast.p,
        "deltas": [pair.delta for pair in contrast.paired.pairs] if contrast.paired else [],
    }


class _Work:
    """Runs studies of a campaign, with the trials that other ideas have already."""

    def __init__(self, campaign: Campaign, run: Run, register: Register) -> None:
        self.campaign, self.run, self.register = campaign, run, register

    def analysed(self, study: Study, folder: Path, *, is_final: bool = False) -> Analysis:
        """Run a study and analyse it; the final one trains nothing and opens the sealed part."""
        home = ResultsFolder(folder)
        todo = [one for one in study.trials if not home.trial(*one).is_finished]
        sources = {trial: self._source(study, *trial) for trial in todo}
        if is_final and (lost := [one for one, there in sources.items() if there is None]):
            arm, seed = lost[0]
            raise ParibusError(
                f"no trial {arm}/seed-{seed} of {self.campaign.path / 'ideas'} is what the arm "
                "says now; restore the records and the code that it was trained with"
            )
        found = {trial: there for trial, there in sources.items() if there is not None}
        if found and not home.exists:
            self.register(study, folder)
        for trial, there in found.items():
            with whole_folder(home.trial(*trial).path) as copy:
                shutil.copytree(there.path, copy, dirs_exist_ok=True)
        options = {"open_test": is_final} if study.trainer == STACKED else {}
        self.run(study, folder, **options)
        return analyse(load_results(folder))

    def _source(self, study: Study, arm: str, seed: int) -> TrialFolder | None:
        """Return a finished trial that is this one by all that is recorded of it."""
        setting = study.setting(arm)
        wanted = setting.model_dump(mode="json")
        stages = [(idea, stage) for idea in self.campaign.ideas for stage in ("screen", "confirm")]
        for idea, stage in stages:
            there = ResultsFolder(self.campaign.home(idea) / stage).trial(arm, seed)
            if not there.is_finished:
                continue
            record = there.read_json("trial.json")
            code = own_digests(setting, study.folder) if record.get("own_modules") else {}
            if record["setting"] == wanted and record.get("own_modules", {}) == code:
                return there
        return None
