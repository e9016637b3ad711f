"""A finished trial, computed again and compared with its record: its evaluation, and first steps of
its training.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from paribus.digests import changes
from paribus.engine.execution.backends import Backend
from paribus.engine.execution.start import described, read_data
from paribus.engine.execution.workers.messages import Comparison, Findings, Repeat, TrainAgain
from paribus.engine.execution.workers.pool import Pool
from paribus.engine.execution.workers.processes import Device
from paribus.errors import ParibusError
from paribus.results import Results, ResultsFolder, TrialFolder
from paribus.results.heldout_part import heldout_folder, is_tested, purpose
from paribus.results.registration import repetitions
from paribus.results.software import SAME_BITS
from paribus.study import Study
from paribus.study.sections import Resources

if TYPE_CHECKING:
    import torch

    from paribus.engine.data import Dataset
    from paribus.engine.evaluation import Evaluation
    from paribus.engine.model import GPT


# Elsewhere: nats per token of a block, and the share of tokens whose most probable guess differs.
LOSS_ROUNDING = 1e-3
HITS_ROUNDING = 5e-3
FLOAT_ROUNDING = 1e-9  # of what is no count in data.json


def repeat_trials(
    study: Study, results: Results, *, workers: int | None, device: Device, backend: str | Backend
) -> list[str]:
    """Repeat every finished trial of `results` but for its training; what does not agree."""
    tasks = [Repeat(trial.arm, trial.seed) for trial in results.finished]
    findings: dict[str, list[str]] = {}

    def hear(task: Repeat, message: Findings) -> None:
        findings[f"{task.arm}/seed-{task.seed}"] = message.lines

    # By one process, also what several devices have trained: equal up to rounding.
    alone = study.model_copy(update={"resources": Resources()})
    with Pool(alone, results.path, device=device, backend=backend) as pool:
        pool.start_for(len(tasks), workers)
        pool.work(tasks, hear)
    return [f for trial in results.finished for f in findings.get(trial.label, [])]


def describe_again(study: Study, results: Results) -> Iterator[str]:
    """data.json against what the text gives now; nothing of a text that no trial was trained on,
    which `repeat` says of each."""
    datasets = read_data(study)
    texts = {arm: datasets[study.setting(arm).data].digests for arm in study.arms}
    if any(trial["data"]["digests"] != texts[arm] for (arm, _), trial in results.trials.items()):
        return
    if not results.data:
        yield "data.json is missing; run the study again, which counts the text and trains nothing"
        return
    for key, (sealed, now) in changes(results.data, described(study, datasets)).items():
        if sealed is None and "looked_at" in key.split("."):
            continue  # the first folders did not say it
        if not (
            isinstance(sealed, float)  # counts are exact
            and isinstance(now, float)
            and math.isclose(sealed, now, rel_tol=FLOAT_ROUNDING)
        ):
            yield f"data.json: {key} is {sealed!r:.60}, and the text gives {now}"


def repeat(
    study: Study,
    results: ResultsFolder,
    dataset: Dataset,
    device: torch.device,
    arm: str,
    seed: int,
) -> list[str]:
    """In a worker: one trial, evaluated and drawn again; what does not agree, a line each."""
    from paribus.engine.evaluation import evaluate_on
    from paribus.engine.evaluation.code_length import code_length
    from paribus.engine.model import build_model, initial_parameters, load_parameters

    trial, setting = results.trial(arm, seed), study.setting(arm, seed)
    recorded = trial.read_json("trial.json")
    if recorded["data"]["digests"] != dataset.digests:
        return [f"trial {trial.label}: the text here is not the one it was trained on"]
    model = build_model(setting, dataset.vocab_size, study.folder)
    initial = {n: p.record for n, p in initial_parameters(model, setting, seed).items()}
    sealed = trial.read_json("initial.json")
    found = []
    if initial.keys() != sealed.keys() or any(
        initial[name] | about != initial[name]  # an earlier record said less
        for name, about in sealed.items()
    ):
        found.append(f"trial {trial.label}: initial values are not those of its seed")
    if recorded["diverged_at"] is None and recorded["batch_digest"] != batches_digest(
        setting, dataset, seed
    ):
        found.append(f"trial {trial.label}: batches are not those of its seed")
    try:
        load_parameters(model, trial.read_weights())
    except (ValueError, RuntimeError) as error:
        return [*found, f"trial {trial.label}: weights do not fit its model: {error}"]
    seq_len, precision = setting.data.seq_len, study.evaluation.precision
    evaluation = evaluate_on(
        model.to(device), dataset, dataset.validation, seq_len, precision=precision
    )
    exact = _same_machine(trial, device)
    found += _blocks(trial, evaluation, exact=exact)
    found += _on_test(study, results, trial, model, dataset, exact=exact)
    found += _curve(study, trial, model, dataset, exact=exact)
    if sealed := recorded.get("code_length"):
        now = code_length(model, dataset, seq_len, sealed["overlap"], precision)
        found += _code_length(trial.label, sealed, now.about, exact=exact)
    return found


def _curve(
    study: Study, trial: TrialFolder, model: GPT, dataset: Dataset, *, exact: bool
) -> Iterator[str]:
    """Points of the held-out curve whose weights are kept, the last among them, measured again."""
    from paribus.engine.evaluation import heldout_loss
    from paribus.engine.execution.trial.heldout_curve import heldout_part, reads_together
    from paribus.engine.model import load_parameters

    last, seq_len = study.setting(trial.arm).iterations, study.setting(trial.arm).data.seq_len
    # Side by side with others, as a stack is read on an accelerator, a loss rounds otherwise.
    is_one = trial.read_json("environment.json").get("stack") == 1
    exact = exact and (is_one or not reads_together(next(model.parameters()).device))
    for point in trial.read_columns("curve.parquet").to_pylist():
        step = point["step"]
        if step != last and step not in trial.kept_steps:
            continue
        load_parameters(model, trial.read_weights(None if step == last else step))
        now = heldout_loss(model.eval(), heldout_part(study, dataset), seq_len, dataset.vocab_size)
        sealed = math.nan if point["loss_sum_nats"] is None else point["loss_sum_nats"]
        apart = abs(sealed - now.nats) / now.tokens
        if math.isnan(sealed) and not math.isfinite(now.nats):
            continue
        if not apart <= (0 if exact else LOSS_ROUNDING):
            yield (
                f"trial {trial.label}: the weights of step {step} give another point of the "
                f"held-out curve: {now.nats / now.tokens} nats/token, and "
                f"{sealed / now.tokens} is recorded"
            )


def batches_digest(setting: Any, dataset: Dataset, seed: int) -> str:
    """Return the running digest of all batches of a trial."""
    from paribus.engine.data import FIRST_DIGEST, extend_digest, step_batch

    running = FIRST_DIGEST
    for t in range(setting.iterations):
        drawn = step_batch(dataset.train, seed, t, setting, dataset.windows)
        running = extend_digest(running, drawn)
    return running


def _same_machine(trial: TrialFolder, device: torch.device) -> bool:
    from paribus.engine.machine.environment import environment

    there, here = trial.read_json("environment.json"), environment(device, 1)
    return all(there.get(key) == here[key] for key in SAME_BITS)


def _on_test(
    study: Study,
    results: ResultsFolder,
    trial: TrialFolder,
    model: GPT,
    dataset: Dataset,
    *,
    exact: bool,
) -> Iterator[str]:
    """Compare what the trial gave on the test part, once that was opened for the verdict."""
    from paribus.engine.data import open_test
    from paribus.engine.evaluation import evaluate_on

    if not is_tested(results, trial):
        return
    tokens = open_test(dataset.test, results, purpose(study.name))
    seq_len = study.setting(trial.arm).data.seq_len
    now = evaluate_on(model, dataset, tokens, seq_len, precision=study.evaluation.precision)
    yield from (
        f"on the test part, {finding}"
        for finding in _blocks(heldout_folder(results, trial.arm, trial.seed), now, exact=exact)
    )


def _blocks(trial: TrialFolder, evaluation: Evaluation, *, exact: bool) -> Iterator[str]:
    """Compare the sealed blocks of the validation split with the ones of now."""
    sealed, now = trial.read_columns("blocks.parquet"), evaluation.blocks
    try:
        loss, correct, predicted = (
            np.array([np.nan if value is None else value for value in sealed[name].to_pylist()])
            for name in ("loss_sum_nats", "correct", "predicted")
        )
    except KeyError as error:
        raise ParibusError(f"trial {trial.label}: blocks.parquet has no {error}") from None
    if not np.array_equal(predicted, now.columns["predicted"]):
        yield f"trial {trial.label}: blocks of other lengths than the text gives"
        return
    apart = np.abs(loss - now.columns["loss_sum_nats"]) / predicted
    apart[np.isnan(loss) & np.isnan(now.columns["loss_sum_nats"])] = 0
    hits = np.abs(correct - now.columns["correct"]).sum() / predicted.sum()
    most = float(apart.max(initial=0))
    most_loss, most_hits = (0, 0) if exact else (LOSS_ROUNDING, HITS_ROUNDING)
    if not most <= most_loss or hits > most_hits:
        where = "on the same kind of machine" if exact else "beyond rounding"
        yield (
            f"trial {trial.label}: its weights give another evaluation {where}: up to {most:.3g} "
            f"nats/token in a block, and {hits:.3%} of the guesses"
        )


def _code_length(
    label: str, sealed: dict[str, Any], now: dict[str, Any], *, exact: bool
) -> Iterator[str]:
    """Compare the sealed code length of the validation text with the one of now."""
    for name, value in now.items():
        there = sealed.get(name)
        if there == value or (there is None and value is not None and not math.isfinite(value)):
            continue  # what is not finite is written as null
        # Only bits are rounded elsewhere; bytes, tokens and documents are counts.
        is_close = (
            isinstance(there, int | float)
            and isinstance(value, float)
            and abs(there - value) <= LOSS_ROUNDING / math.log(2) * now["n_tokens"]
        )
        if exact or not is_close:
            where = "on the same kind of machine" if exact else "beyond rounding"
            yield (
                f"trial {label}: its weights give another code length {where}: {name} is {there} "
                f"in trial.json, and {value} now"
            )


COMPARED = ("train_loss", "grad_norm")


def retrain(pool: Pool, study: Study, results: ResultsFolder, say: Callable[[str], object]) -> None:
    """Train again what is registered and was not yet, and write `repeated.json`.

    A trial of another machine cannot be compared to the bit: that is a warning, and it stays open.
    """
    done = results.read_repeated(study.arms)
    asked = [
        TrainAgain(arm, one["seed"], one["steps"])
        for arm, one in repetitions(results).items()
        if arm not in done
    ]
    if not asked:
        return
    for steps in dict.fromkeys(task.steps for task in asked):
        of = [f"{task.arm}/seed-{task.seed}" for task in asked if task.steps == steps]
        say(f"training again {steps} steps of {', '.join(of)}")
    answers = pool.ask_fresh(
        asked, [f"on {task.arm}/seed-{task.seed}, which it trained again" for task in asked]
    )
    for task, found in zip(asked, answers, strict=True):
        if found.elsewhere:
            logging.getLogger("paribus").warning(
                "%s/seed-%d cannot be trained again to the same bits here (another %s); the "
                "control 'repeatable' is not proven",
                *(task.arm, task.seed, ", ".join(found.elsewhere)),
            )
            continue
        trial = results.trial(task.arm, task.seed)
        about = {"seed": trial.seed, "steps": task.steps, "trial": trial.seal}
        done[trial.arm] = about | {"differs_at": found.differs_at, "differs": found.differs}
    if done:
        results.write_repeated(done)


def train_again(
    study: Study,
    results: ResultsFolder,
    dataset: Dataset,
    device: torch.device,
    task: TrainAgain,
    graphs: bool = True,
) -> Comparison:
    """In a worker: the first `task.steps` steps of a finished trial, against its record."""
    from paribus.engine.machine.assembly import build_stack
    from paribus.engine.machine.environment import environment

    trial = results.trial(task.arm, task.seed)
    there = trial.read_json("environment.json")
    here = environment(device, 1)
    elsewhere = [key for key in ("code", *SAME_BITS) if there.get(key) != here[key]]
    if elsewhere:
        return Comparison(elsewhere)
    trials = [(a, s) for a, s in trial.read_json("trial.json")["stack"]]
    settings, seeds = [study.setting(a, s) for a, s in trials], [s for _, s in trials]
    stack = build_stack(study, settings, seeds, dataset, device, strict=False, graphs=graphs)
    for _ in range(task.steps):
        stack.step()
    measured = stack.state(trials.index((task.arm, task.seed))).measured
    recorded = trial.read_columns("steps.parquet", list(COMPARED))
    differing: list[tuple[int, str]] = []
    for name in COMPARED:
        ours = measured[:, list(stack.columns).index(name)]
        theirs = recorded[name].to_numpy()[: len(ours)].astype(ours.dtype)
        for step in np.flatnonzero(~_same(ours, theirs))[:1].tolist():
            words = f"{name} {ours[step]:.9g}, and {theirs[step]:.9g} is recorded"
            differing.append((step + 1, words))
    if not differing:
        return Comparison([])
    return Comparison([], *min(differing, key=lambda found: found[0]))


def _same(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Compare two columns; a replica that has diverged has no values any more."""
    return (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
