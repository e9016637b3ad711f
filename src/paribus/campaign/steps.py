"""Trying an idea (the screen, then the confirmation on fresh seeds), and ending a campaign.

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
from paribus.decision import decide
from paribus.errors import ParibusError, nearest
from paribus.files import whole_folder
from paribus.report.model import build_report, verdict_record
from paribus.results import Results, ResultsFolder, load_results
from paribus.results.formats import write_json
from paribus.results.opened_texts import note
from paribus.results.trial_folder import TrialFolder
from paribus.runs import register, run
from paribus.study import Study
from paribus.study.custom_code import own_digests
from paribus.study.trainer import STACKED

Run = Callable[..., Results]
Register = Callable[[Study, Path], Path]


def try_idea(
    campaign: Campaign,
    name: str,
    overrides: Mapping[str, Any] | None = None,
    *,
    run: Run = run,
    register: Register = register,
) -> Idea:
    """Screen an idea and, if it passes, confirm it; continue an interrupted one.

    Args:
        campaign: from `begin` or `open_campaign`.
        name: the idea's name, which is the name of its arm.
        overrides: dotted keys and values; None continues the idea of that name.
        run: trains a study, as `paribus.run` does; `register` as `paribus.register`.

    Raises ParibusError on bad input, with nothing recorded, and if a trial fails.
    """
    with campaign.lock():
        if name not in campaign.ideas:
            _require_new(campaign, name, overrides or {})
            _begin(campaign, name, dict(overrides or {}), register)
        elif overrides not in (None, campaign.ideas[name].overrides):
            was = campaign.ideas[name].overrides
            raise ParibusError(f"idea '{name}' was tried with {was}; give this one another name")
        if campaign.ideas[name].state == "screening":
            _screen(campaign, campaign.ideas[name], run, register)
        if campaign.ideas[name].state == "confirming":
            _confirm(campaign, campaign.ideas[name], run, register)
    return campaign.ideas[name]


def end(campaign: Campaign, *, run: Run = run, register: Register = register) -> dict[str, Any]:
    """Judge the kept ideas on the sealed test part, which is opened once.

    Returns the event that ended the campaign. No idea can be tried afterwards.
    """
    with campaign.lock():
        if campaign.ended is not None:
            return campaign.ended
        kept = {i.name: i.overrides for i in campaign.ideas.values() if i.state == "kept"}
        if not campaign.is_ending:
            campaign.add("ending", kept=list(kept))
        verdicts: dict[str, Any] = {}
        if kept:
            folder, study = campaign.path / "final", campaign.study_of("final", kept)
            analysis = _analysed(campaign, study, folder, run, register, is_final=True)
            decided = decide(analysis)
            write_json(folder / "analysis.json", analysis.to_dict())
            write_json(folder / "verdict.json", verdict_record(build_report(decided)))
            note(ResultsFolder(folder), is_known=True)
            for verdict in decided:
                keys = ("word", "effect", "low", "high", "p", "adjusted_p")
                verdicts[verdict.arm] = {key: getattr(verdict, key) for key in keys}
        opened = bool(kept and campaign.study.facts.seals_test)
        campaign.add("ended", opened=opened, verdicts=verdicts)
        assert campaign.ended is not None
        return campaign.ended


def _require_new(campaign: Campaign, name: str, overrides: Mapping[str, Any]) -> None:
    """Raise ParibusError where an idea cannot be tried."""
    ideas, why = campaign.ideas, ""
    same = [idea.name for idea in ideas.values() if idea.overrides == overrides]
    if campaign.is_ending:
        why = f"{campaign.path} has ended; begin another campaign"
    elif not overrides:
        why = f"there is no idea '{name}': {nearest(name, list(ideas))}" if ideas else ""
        why = why or f"idea '{name}' sets nothing; add --set key=value"
    elif name == campaign.study.baseline:
        why = f"'{name}' is the baseline; give the idea another name"
    elif same:
        why = f"idea '{same[0]}' set the same; it is not tested twice"
    if why:
        raise ParibusError(why)


def _begin(campaign: Campaign, name: str, overrides: Mapping[str, Any], register: Register) -> None:
    """Record an idea and register its screen, which tries its code."""
    campaign.study_of(name, {name: overrides})  # refuse what is not an arm before it is recorded
    folder = campaign.results_of(name, "screen")
    study = campaign.study_of(f"{name}-screen", {name: overrides}, screen=True)
    shutil.rmtree(folder.parent, ignore_errors=True)  # left by a process that was killed
    try:
        register(study, folder)
    except BaseException:
        shutil.rmtree(folder.parent, ignore_errors=True)
        raise
    campaign.add("begun", idea=name, overrides=overrides)


def _screen(campaign: Campaign, idea: Idea, run: Run, register: Register) -> None:
    """Train few seeds. An idea passes if its mean change is an improvement."""
    study = campaign.study_of(f"{idea.name}-screen", {idea.name: idea.overrides}, screen=True)
    folder = campaign.results_of(idea.name, "screen")
    register(study, folder)
    try:
        analysis = _analysed(campaign, study, folder, run, register)
    except ParibusError as error:
        campaign.add("failed", idea=idea.name, state="failed", why=str(error))
        raise
    measured, why = _measured(analysis, idea.name)
    why = why or ("" if measured["better"] else "not better at the seeds of the screen")
    state = {"state": "dropped"} if why else {"state": "confirming", "level": campaign.next_level}
    campaign.add("screened", idea=idea.name, screen=measured, why=why, **state)


def _confirm(campaign: Campaign, idea: Idea, run: Run, register: Register) -> None:
    """Test on fresh seeds. An idea is kept if it is better with a p at or below its level."""
    study = campaign.study_of(f"{idea.name}-confirm", {idea.name: idea.overrides})
    folder = campaign.results_of(idea.name, "confirm")
    measured, why = _measured(_analysed(campaign, study, folder, run, register), idea.name)
    assert idea.level is not None
    why = why or ("" if measured["better"] else "not better at the fresh seeds")
    if not why and (measured["p"] is None or measured["p"] > idea.level):
        why = "p above the level"
    state = "not kept" if why else "kept"
    campaign.add("confirmed", idea=idea.name, confirm=measured, state=state, why=why)


def _analysed(
    campaign: Campaign,
    study: Study,
    folder: Path,
    run: Run,
    register: Register,
    *,
    is_final: bool = False,
) -> Analysis:
    """Run a study with copies of the trials that other ideas have, and analyse it.

    The final study trains nothing, and opens the sealed test part.
    """
    home = ResultsFolder(folder)
    missing = [trial for trial in study.trials if not home.trial(*trial).is_finished]
    sources = {trial: _same_trial(campaign, study, *trial) for trial in missing}
    lost = [trial for trial, source in sources.items() if source is None]
    if is_final and lost:
        raise ParibusError(
            f"no trial of {campaign.path} is {lost[0][0]}/seed-{lost[0][1]} as its arm is now; "
            "restore the records and the code that it was trained with",
            code="changed",
        )
    if len(lost) < len(missing) and not home.exists:
        register(study, folder)
    for trial, source in sources.items():
        if source is not None:
            with whole_folder(home.trial(*trial).path) as copy:
                shutil.copytree(source.path, copy, dirs_exist_ok=True)
    options = {"open_test": is_final} if study.trainer == STACKED else {}
    run(study, folder, **options)
    return analyse(load_results(folder))


def _measured(analysis: Analysis, arm: str) -> tuple[dict[str, Any], str]:
    """Return an arm's change on the primary endpoint, and why it cannot be judged, if so."""
    contrast = analysis.contrast(arm)
    decided, n_seeds = contrast.decided, len(analysis.study.seeds)
    n_lost = n_seeds - len(contrast.seeds)
    reasons = [pair.why for pair in analysis.left_out if pair.arm == arm]
    lost = f"{n_lost} of {n_seeds} pairs cannot be compared: {next(iter(reasons), 'diverged')}"
    whys = [
        analysis.unregistered,
        *(f"{missing} is missing" for missing in analysis.missing_of(contrast)),
        *(f"{control.name}: {control.detail}" for control in analysis.broken(arm)),
        *([lost] if n_lost else []),
    ]
    why = next(filter(None, whys), "")
    if decided is None:
        return {"better": False, "effect": None, "p": None}, why or contrast.why_not
    sign = 1 if contrast.declared.better == "higher" else -1
    measured = {"better": sign * decided.mean > 0, "effect": decided.mean, "p": contrast.p}
    if contrast.tested:
        measured |= {"low": decided.interval.low, "high": decided.interval.high}
    return measured, why


def _same_trial(campaign: Campaign, study: Study, arm: str, seed: int) -> TrialFolder | None:
    """Return a finished trial of any idea with the same setting and custom code."""
    setting = study.setting(arm)
    wanted = setting.model_dump(mode="json")
    for idea in campaign.ideas:
        for stage in ("screen", "confirm"):
            trial = ResultsFolder(campaign.results_of(idea, stage)).trial(arm, seed)
            record = trial.read_json("trial.json") if trial.is_finished else {"setting": None}
            code = own_digests(setting, study.folder) if record.get("own_modules") else {}
            if record["setting"] == wanted and record.get("own_modules", {}) == code:
                return trial
    return None
