"""Steps of a campaign: trying an idea (a screen, then a confirmation on fresh seeds), and the
end.

Baseline trials are trained once for all ideas: a sealed trial of another idea with the same
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
from paribus.results.trial_folder import TrialFolder
from paribus.runs.run import register, run
from paribus.study import Study
from paribus.study.custom_code import own_digests
from paribus.study.trainer import STACKED

Run = Callable[..., Results]
Register = Callable[[Study, Path], Path]
VERDICT = ("word", "effect", "low", "high", "p", "adjusted_p")  # what is kept of the end's


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
        run, register: functions with the interface of `paribus.run` and `paribus.register`.

    Raises ParibusError on bad input, in which case nothing is recorded, and if a trial fails.
    """
    with campaign.lock():
        _require_new(campaign, name, overrides)
        idea = campaign.ideas.get(name) or Idea(overrides=dict(overrides or {}))
        confirm = campaign.study_of(f"{name}-confirm", {name: idea.overrides})
        screen = campaign.study_of(f"{name}-screen", {name: idea.overrides}, screen=True)
        if idea.state == "screening":
            folder = campaign.results_of("screen", name)
            if name not in campaign.ideas:
                shutil.rmtree(folder.parent, ignore_errors=True)  # left by a killed process
                register(screen, folder)  # tries its code: a mistake there is not counted
                campaign.ideas[name] = idea
                campaign.save()
            idea.screen, idea.why = _measured(campaign, screen, folder, name, run, register)
            if idea.why:
                idea.state = "dropped"
            else:
                idea.state, idea.level = "confirming", campaign.next_level
                campaign.tested.append(name)
            campaign.save()
        if idea.state == "confirming":
            folder = campaign.results_of("confirm", name)
            idea.confirm, idea.why = _measured(campaign, confirm, folder, name, run, register)
            p, level = idea.confirm["p"], idea.level or 0.0
            if not idea.why and (p is None or p > level):
                idea.why = "p above the level"
            idea.state = "not kept" if idea.why else "kept"
            campaign.save()
    return idea


def _require_new(campaign: Campaign, name: str, overrides: Mapping[str, Any] | None) -> None:
    """Raise ParibusError if an idea can neither be tried nor continued."""
    why = ""
    same = [known for known, idea in campaign.ideas.items() if idea.overrides == overrides]
    if campaign.is_over:
        why = f"{campaign.path} has ended; begin another campaign"
    elif name in campaign.ideas:
        if overrides is not None and name not in same:
            why = f"idea '{name}' was tried otherwise; give this one another name"
    elif not overrides:
        why = f"no idea '{name}': {nearest(name, list(campaign.ideas))}; or add --set key=value"
    elif name == campaign.study.baseline:
        why = f"'{name}' is the baseline; give the idea another name"
    elif same:
        why = f"idea '{same[0]}' set the same; it is not tested twice"
    if why:
        raise ParibusError(why)


def end(campaign: Campaign, *, run: Run = run, register: Register = register) -> None:
    """Judge the kept ideas on the sealed test part, which is opened once.

    No idea can be tried afterwards.
    """
    with campaign.lock():
        if campaign.verdicts is not None:
            return
        kept = {name: i.overrides for name, i in campaign.ideas.items() if i.state == "kept"}
        verdicts: dict[str, dict[str, Any]] = {}
        if kept:
            study, folder = campaign.study_of("final", kept), campaign.results_of("final")
            analysis = _analysed(campaign, study, folder, run, register, is_final=True)
            decided = decide(analysis)
            write_json(folder / "analysis.json", analysis.to_dict())
            write_json(folder / "verdict.json", verdict_record(build_report(decided)))
            verdicts = {v.arm: {key: getattr(v, key) for key in VERDICT} for v in decided}
        campaign.verdicts = verdicts
        campaign.save()


def _analysed(
    campaign: Campaign,
    study: Study,
    folder: Path,
    run: Run,
    register: Register,
    *,
    is_final: bool = False,
) -> Analysis:
    """Run a study, reusing trials of other ideas, and analyse it.

    The final study trains nothing and opens the sealed test part.
    """
    home = ResultsFolder(folder)
    missing = [trial for trial in study.trials if not home.trial(*trial).is_finished]
    sources = {trial: _same_trial(campaign, study, *trial) for trial in missing}
    if is_final and None in sources.values():
        raise ParibusError(
            f"a trial of {campaign.path} does not match its arm; restore the records and the "
            "code that it was trained with",
            code="changed",
        )
    if any(sources.values()) and not home.exists:
        register(study, folder)
    for trial, source in sources.items():
        if source is not None:
            with whole_folder(home.trial(*trial).path) as copy:
                shutil.copytree(source.path, copy, dirs_exist_ok=True)
    options = {"open_test": is_final} if study.trainer == STACKED else {}
    run(study, folder, **options)
    return analyse(load_results(folder))


def _measured(
    campaign: Campaign, study: Study, folder: Path, arm: str, run: Run, register: Register
) -> tuple[dict[str, Any], str]:
    """Run a stage; return the arm's change on the primary endpoint, and why it fails ("" if it
    passes)."""
    analysis = _analysed(campaign, study, folder, run, register)
    contrast = analysis.contrast(arm)
    decided, n_seeds = contrast.decided, len(study.seeds)
    whys = [
        analysis.unregistered,
        *(f"{missing} is missing" for missing in analysis.missing_of(contrast)),
        *(f"{control.name}: {control.detail}" for control in analysis.broken(arm)),
    ]
    if n_lost := n_seeds - len(contrast.seeds):
        reasons = [pair.why for pair in analysis.left_out if pair.arm == arm]
        reason = next(iter(reasons), "diverged")
        whys.append(f"{n_lost} of {n_seeds} pairs cannot be compared: {reason}")
    why = next(filter(None, whys), "")
    if decided is None:
        return {"effect": None, "p": None}, why or contrast.why_not
    measured = {"effect": decided.mean, "p": contrast.p}
    if contrast.tested:
        measured |= {"low": decided.interval.low, "high": decided.interval.high}
    is_better = decided.mean > 0 if contrast.declared.better == "higher" else decided.mean < 0
    return measured, why or ("" if is_better else "not better")


def _same_trial(campaign: Campaign, study: Study, arm: str, seed: int) -> TrialFolder | None:
    """Return a finished trial of any idea with the same setting and custom code."""
    setting = study.setting(arm)
    wanted = setting.model_dump(mode="json")
    for idea in campaign.ideas:
        for stage in ("screen", "confirm"):
            trial = ResultsFolder(campaign.results_of(stage, idea)).trial(arm, seed)
            record = trial.read_json("trial.json") if trial.is_finished else {"setting": None}
            code = own_digests(setting, study.folder) if record.get("own_modules") else {}
            if record["setting"] == wanted and record.get("own_modules", {}) == code:
                return trial
    return None
