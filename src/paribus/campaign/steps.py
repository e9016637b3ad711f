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
        idea = _begun(campaign, name, overrides, register)
        if idea.state == "screening":
            _screen(campaign, idea, run, register)
            idea = campaign.ideas[name]
        if idea.state == "confirming":
            _confirm(campaign, idea, run, register)
    return campaign.ideas[name]


def end(campaign: Campaign, *, run: Run = run, register: Register = register) -> dict[str, Any]:
    """Judge the kept ideas on the sealed test part, which is opened once.

    Returns the event that ended the campaign. No idea can be tried afterwards.
    """
    with campaign.lock():
        if campaign.ended is not None:
            return campaign.ended
        kept = [idea for idea in campaign.ideas.values() if idea.state == "kept"]
        if not campaign.is_ending:
            campaign.add("ending", kept=[idea.name for idea in kept])
        verdicts: dict[str, Any] = {}
        if kept:
            folder = campaign.path / "final"
            study = campaign.study_of("final", {idea.name: idea.overrides for idea in kept})
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


def _begun(
    campaign: Campaign, name: str, overrides: Mapping[str, Any] | None, register: Register
) -> Idea:
    """Return the idea, recorded and with its screen registered. Registering tries its code."""
    ideas, known = campaign.ideas, campaign.ideas.get(name)
    if campaign.is_ending:
        raise ParibusError(f"{campaign.path} has ended; begin another campaign")
    if known and overrides not in (None, known.overrides):
        raise ParibusError(
            f"idea '{name}' was tried with {known.overrides}; give this one another name"
        )
    if known and known.state != "screening":
        return known
    if not known:
        if overrides is None and ideas:
            raise ParibusError(f"there is no idea '{name}': {nearest(name, list(ideas))}")
        if not overrides:
            raise ParibusError(f"idea '{name}' sets nothing; add --set key=value")
        if name == campaign.study.baseline:
            raise ParibusError(f"'{name}' is the baseline; give the idea another name")
        for idea in ideas.values():
            if idea.overrides == overrides:
                raise ParibusError(f"idea '{idea.name}' set the same; it is not tested twice")
    table = known.overrides if known else dict(overrides or {})
    for screen in (True, False):  # refuse what is not an arm before anything is recorded
        study = campaign.study_of(f"{name}-screen", {name: table}, screen=screen)
        study.setting(name)
    folder = campaign.results_of(name, "screen")
    if not known:
        shutil.rmtree(folder.parent, ignore_errors=True)  # left by a process that was killed
    try:
        study = campaign.study_of(f"{name}-screen", {name: table}, screen=True)
        register(study, folder)
    except BaseException:
        if not known:
            shutil.rmtree(folder.parent, ignore_errors=True)
        raise
    if not known:
        campaign.add("begun", idea=name, overrides=table)
    return campaign.ideas[name]


def _screen(campaign: Campaign, idea: Idea, run: Run, register: Register) -> None:
    """Train few seeds. An idea passes if its mean change is for the better; this is no verdict."""
    study = campaign.study_of(f"{idea.name}-screen", {idea.name: idea.overrides}, screen=True)
    folder = campaign.results_of(idea.name, "screen")
    try:
        analysis = _analysed(campaign, study, folder, run, register)
    except ParibusError as error:
        campaign.add("failed", idea=idea.name, state="failed", why=str(error))
        raise
    measured, why = _measured(analysis, idea.name)
    why = why or ("" if measured["better"] else "not better at the seeds of the screen")
    values: dict[str, Any] = {"idea": idea.name, "screen": measured, "why": why}
    if why:
        campaign.add("screened", state="dropped", **values)
    else:
        campaign.add("screened", state="confirming", level=campaign.next_level, **values)


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


def _measured(analysis: Analysis, arm: str) -> tuple[dict[str, Any], str]:
    """Return an arm's change on the primary endpoint, and why it cannot be judged, if so."""
    contrast = analysis.contrast(arm)
    decided, n_seeds = contrast.decided, len(analysis.study.seeds)
    missing, broken = analysis.missing_of(contrast), analysis.broken(arm)
    n_lost = n_seeds - len(contrast.seeds)
    why = analysis.unregistered
    if not why and missing:
        why = f"{missing[0]} is missing"
    if not why and broken:
        why = f"{broken[0].name}: {broken[0].detail}"
    if not why and n_lost:
        reasons = [pair.why for pair in analysis.left_out if pair.arm == arm]
        why = f"{n_lost} of {n_seeds} pairs cannot be compared: {next(iter(reasons), 'diverged')}"
    if decided is None:
        return {"better": False, "effect": None, "p": None}, why or contrast.why_not
    sign = 1 if contrast.declared.better == "higher" else -1
    measured = {"better": sign * decided.mean > 0, "effect": decided.mean, "p": contrast.p}
    if contrast.tested:
        measured |= {"low": decided.interval.low, "high": decided.interval.high}
    return measured, why


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
    copies: dict[tuple[str, int], TrialFolder] = {}
    for trial in study.trials:
        if home.trial(*trial).is_finished:
            continue
        source = _same_trial(campaign, study, *trial)
        if source is not None:
            copies[trial] = source
        elif is_final:
            raise ParibusError(
                f"no trial of {campaign.path} is {trial[0]}/seed-{trial[1]} as its arm is now; "
                "restore the records and the code that it was trained with"
            )
    if copies and not home.exists:
        register(study, folder)
    for trial, source in copies.items():
        with whole_folder(home.trial(*trial).path) as copy:
            shutil.copytree(source.path, copy, dirs_exist_ok=True)
    options = {"open_test": is_final} if study.trainer == STACKED else {}
    run(study, folder, **options)
    return analyse(load_results(folder))


def _same_trial(campaign: Campaign, study: Study, arm: str, seed: int) -> TrialFolder | None:
    """Return a finished trial of any idea with the same setting and custom code."""
    setting = study.setting(arm)
    wanted = setting.model_dump(mode="json")
    for idea in campaign.ideas:
        for stage in ("screen", "confirm"):
            trial = ResultsFolder(campaign.results_of(idea, stage)).trial(arm, seed)
            if not trial.is_finished:
                continue
            record = trial.read_json("trial.json")
            code = own_digests(setting, study.folder) if record.get("own_modules") else {}
            if record["setting"] == wanted and record.get("own_modules", {}) == code:
                return trial
    return None
