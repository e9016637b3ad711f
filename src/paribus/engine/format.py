"""What the judge knows of the trainer that ships: its sections, its records, and their controls.

Nothing here imports PyTorch: a finished study is judged without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from paribus import numbers
from paribus.engine.setting import OF_FLOAT16, Evaluation, LossScale, Probes, Setting, Tasks
from paribus.engine.setting.curve import curve_steps, why_no_curve
from paribus.engine.setting.presets import PRESET, preset_values
from paribus.engine.setting.setting import Average, Schedule
from paribus.engine.setting.treatment import require_shared_text
from paribus.engine.tasks import registered_tasks
from paribus.errors import ParibusError
from paribus.metric import Metric
from paribus.study import Study, explain
from paribus.study.trainer import TrainerFormat
from paribus.study.tuning_study import arm_of

PRECISION = "training.precision"
TEST_REUSE = "data.test_reuse"
ITERATIONS = "training.iterations"
SALT = "model.init.salt"
# What a budget is, or is measured by: the same for every candidate.
FIXED = {
    "training.iterations": "the budget",
    "training.tokens": "the budget",
    "training.budget": "in what budgets match",
    "training.precision": "a control",
    "training.keep": "what is kept",
    "training.keep_every": "what is kept",
    "model.preset": "several keys; name each",
}
TUNABLE = ("training.", "model.")
WHOLE_SCHEDULE = {key: getattr(Schedule(), key) for key in Schedule.model_fields}


class Sections(Setting):
    """All of a study file that the engine reads: what arms override, and what is alike in all."""

    probes: Probes = Probes()
    evaluation: Evaluation = Evaluation()
    tasks: Tasks = Tasks()


# Corpora that are fetched from the network once, where neither PARIBUS_DATA nor the cache has them.
DOWNLOADED = ("shakespeare", "tinystories", "wikitext-103", "fineweb-edu", "huggingface")


class StackedFormat(TrainerFormat):
    """How studies and records of the trainer `stacked` are read."""

    loss = "validation_loss"
    asks = True
    defaults = MappingProxyType(
        {
            "endpoints": (
                {
                    "metric": "validation_loss",
                    "primary": True,
                    "margin": 0.02,
                    "smallest_effect": 0.02,
                },
                {"metric": "validation_perplexity"},
                {"metric": "validation_accuracy"},
                {"metric": "calibration_error"},
                {"metric": "brier_score"},
                {"metric": "macro_accuracy"},
            )
        }
    )

    free = (
        ("probes", "every"),
        ("data", "mixture"),
        ("training", "optimizer", "options"),
        ("training", "loss", "options"),
        ("training", "loss", "auxiliary"),
        ("training", "schedule", "options"),
        ("training", "average", "options"),
    )
    left_out = MappingProxyType(
        {
            "training.loss.auxiliary": {},
            "training.loss_scale": LossScale().model_dump(),
            "training.average": Average().model_dump(),
            "training.schedule.initial_fraction": 0.0,
            "training.schedule.options": {},
            "training.schedules": {},
            "training.schedules.momentum": WHOLE_SCHEDULE,
            "training.schedules.weight_decay": WHOLE_SCHEDULE,
            TEST_REUSE: "declare",
        }
    )
    alternatives = MappingProxyType(
        {ITERATIONS: "training.tokens", "training.tokens": ITERATIONS},
    )

    def expanded(self, overrides: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Return dotted overrides in order, a preset first: what else is set goes over it."""
        found: list[tuple[str, Any]] = []
        if PRESET in overrides:
            values = preset_values(overrides[PRESET])
            found += [(f"model.{part}", value) for part, value in values.items()]
            found.append((PRESET, overrides[PRESET]))
        return found + [(key, value) for key, value in overrides.items() if key != PRESET]

    def why_not_together(self, overrides: Mapping[str, Any]) -> str:
        """Return why an arm cannot set all of these; empty where it can."""
        if self.alternatives.keys() <= overrides.keys():
            return "sets both training.tokens and .iterations; set one"
        return ""

    def sections(self, table: dict[str, Any], others: Sequence[str]) -> dict[str, Any]:
        """Return the sections, validated. Raises ParibusError."""
        try:
            found = Sections.model_validate(table)
        except ValidationError as error:
            raise ParibusError(explain(error, Sections, others)) from None
        return {name: getattr(found, name) for name in Sections.model_fields}

    def setting(self, shared: dict[str, Any]) -> Setting:
        """Return what a trial is trained with."""
        try:
            return Setting.model_validate(shared)
        except ValidationError as error:
            raise ParibusError(explain(error, Setting)) from None

    def shared(self, study: Study) -> dict[str, Any]:
        """Return the dumped sections that arms override."""
        return study.model_dump(include=set(Setting.model_fields))

    def require_comparable(self, study: Study) -> None:
        """Raise ParibusError where arms cannot be compared, whatever they give."""
        for arm in study.arms:
            if TEST_REUSE in study.arms[arm].set:
                raise ParibusError(
                    f"arm '{arm}' sets {TEST_REUSE}, which is of the whole study; set it in [data]"
                )
            if study.arms[arm].set.get(PRECISION) == "auto":
                raise ParibusError(
                    f"arm '{arm}' sets {PRECISION} = 'auto', which differs from device to device; "
                    "an arm states float32, bfloat16 or float16"
                )
            setting: Setting = study.setting(arm)
            if why := why_no_curve(study.evaluation, arm, setting.budget_iterations):
                raise ParibusError(why)
            reference = study.reference(arm)
            if reference is not None:
                _require_same_budget(arm, setting, reference, study.setting(reference))
        _require_float16(study)

    def why_incomparable(self, study: Study, metric: Metric, arm: str, reference: str) -> str:
        """Return why a metric does not mean the same in both arms; empty where it does."""
        if metric.of_tokens and not study.share_tokens(arm, reference):
            return "of single tokens, and the arms have other tokenizers"
        precisions = {study.setting(one).training.precision for one in (arm, reference)}
        if metric.name in OF_FLOAT16 and precisions != {"float16"}:
            return f"{metric.name} is measured in float16 alone"
        return ""

    def share_tokens(self, study: Study, arm: str, reference: str) -> bool:
        """Return whether a token is the same piece of text in both arms."""
        ours, theirs = (study.setting(one).data.tokenizer for one in (arm, reference))
        return ours == theirs

    def why_not_tuned(self, key: str) -> str:
        """Return why a key cannot be tuned; empty where it can."""
        if key in FIXED:
            return f"tuning sets {key}, which is {FIXED[key]}; it is the same for every trial"
        if not key.startswith(TUNABLE) or key.startswith("model.modules"):
            return f"tuning sets {key}; keys of training and built-in parts of model can be tuned"
        return ""

    def tuning_tables(self, study: Study, *, asks: bool) -> dict[str, Any]:
        """Return the sections of the study that tunes `study`: fewer measurements."""
        training = study.training.model_dump() | {"keep": (), "keep_every": None}
        if study.tuning is not None and study.tuning.iterations is not None:
            training |= {"iterations": study.tuning.iterations, "tokens": None}
        return {
            "tasks": study.tasks.model_dump() if asks else {"names": []},
            "evaluation": study.evaluation.model_dump() | {"every": None, "target": None},
            "training": training,
        }

    def tuning_overrides(self, study: Study, arm: str) -> dict[str, Any]:
        """Return the shorter trials of an arm whose iterations follow from its reference's."""
        assert study.tuning is not None
        if study.tuning.iterations is None or ITERATIONS not in study.arms[arm].set:
            return {}
        return {ITERATIONS: _shortened(study, arm, study.tuning.iterations)}

    def require_tunable(self, study: Study) -> None:
        """Raise ParibusError where an arm has a budget of its own, and tuning another."""
        assert study.tuning is not None
        for arm, spec in study.arms.items():
            own = {ITERATIONS, "training.tokens"} & spec.set.keys()
            if study.tuning.iterations is not None and own and study.training.budget == "tokens":
                raise ParibusError(
                    f"tuning.iterations = {study.tuning.iterations}, and arm '{arm}' sets "
                    f"{min(own)}; leave one out"
                )

    def require_equal_budgets(self, study: Study, made: Study, arms: Sequence[str]) -> None:
        """Raise ParibusError where candidates of one arm are trained on other budgets."""
        budgets = {made.setting(arm).tokens for arm in arms}
        if len(budgets) > 1:
            named = arm_of(arms[0])
            raise ParibusError(
                f"tuning would train '{named}' on {min(budgets)} tokens with one candidate and on "
                f"{max(budgets)} with another; every trial has the same budget: state "
                "training.tokens"
            )

    def at_rates(self, study: Study, arm: str, reference: str) -> str:
        """Return `at learning rate 3e-4, which was not tuned`: what a verdict must add."""
        how = "not tuned"
        if study.tuning is not None:
            keys = ", ".join(key.rpartition(".")[2] for key in study.tuning.keys)
            how = f"not tuned, unlike {keys}"
        rates = [study.setting(a).training.optimizer.learning_rate for a in (reference, arm)]
        if rates[0] == rates[1]:
            return f"at learning rate {numbers.compact(rates[0])}, which was {how}"
        theirs, ours = map(numbers.compact, rates)
        return f"at learning rates {ours} against {theirs}, which were {how}"

    def registered_tasks(self, study: Study, folder: Path) -> dict[str, Any]:
        """Return what is registered of the tasks that are written in `folder`."""
        return registered_tasks(folder, study.tasks)

    def lowers_rates(self, study: Study) -> bool:
        """Return whether learning rates fall, so that a shorter run is not a part of a longer."""
        return any(study.setting(a).training.schedule.kind != "constant" for a in study.arms)

    def steps(self, study: Study, arm: str) -> int | None:
        """Return how many steps a trial of `arm` has."""
        return study.setting(arm).iterations

    def rates(self, study: Study) -> set[float]:
        """Return the learning rates of all arms."""
        return {study.setting(arm).training.optimizer.learning_rate for arm in study.arms}

    def sizes(self, study: Study) -> dict[str, str]:
        """Return how large the baseline is and how long it is trained."""
        setting: Setting = study.setting(study.baseline)
        return {
            "layers x width": f"{setting.model.n_layer} x {setting.model.d_model}",
            "iterations": f"{setting.iterations:,}",
            "tokens": f"{setting.tokens:,}",
        }

    def flops(self, study: Study) -> float | None:
        """Return about how many FLOPs all trials take, those of tuning too: 6 x parameters x tokens
        (Kaplan et al. 2020), with 12 x layers x width^2 parameters, and no embeddings."""
        tuning, total = study.tuning, 0.0
        for arm in study.arms:
            setting: Setting = study.setting(arm)
            model = setting.model
            trials = float(len(study.seeds))
            if tuning is not None:
                whole = setting.budget_iterations
                part = (tuning.iterations or whole) / whole
                trials += part * len(tuning.seeds) * len(tuning.candidates)
            total += trials * 6 * 12 * model.n_layer * model.d_model**2 * setting.tokens
        return total

    def downloads(self, study: Study) -> bool:
        """Return whether its text comes from the network, where it is not here yet."""
        return study.data.corpus in DOWNLOADED

    def tokens(self, study: Study, arm: str) -> int | None:
        """Return how many tokens a trial of `arm` is trained on."""
        return study.setting(arm).tokens

    def tokens_after(self, study: Study, arm: str, step: int) -> int | None:
        """Return how many tokens a trial of `arm` has learned from after so many steps."""
        return study.setting(arm).tokens_before(step)

    def target(self, study: Study) -> float | None:
        """Return the loss to which budgets are counted; None without one."""
        return study.evaluation.target

    def curve_steps(self, study: Study, arm: str) -> tuple[int, ...]:
        """Return the steps of the held-out curve; empty where none is measured."""
        return curve_steps(study, arm)

    def seals_test(self, study: Study) -> bool:
        """Return whether the study seals a part of its text for the verdict."""
        return bool(study.data.test_fraction or study.data.test_path)

    def texts(self, study: Study) -> list[Path]:
        """Return the files of text and vocabulary that the study names, as absolute paths."""
        found = []
        for data in dict.fromkeys([study.data, *(study.setting(arm).data for arm in study.arms)]):
            names = [data.tokenizer_file] if data.tokenizer_file is not None else []
            found += [(study.folder / name).resolve() for name in (*names, *data.texts)]
        return found

    def salted(self, study: Study, number: int) -> dict[str, Any]:
        """Return the override that draws other initial values from the same distributions."""
        return {SALT: study.setting(study.baseline).model.init.salt + number}


def _require_same_budget(arm: str, ours: Setting, reference: str, theirs: Setting) -> None:
    if ours.training.budget != theirs.training.budget:
        raise ParibusError(
            f"arm '{arm}' has a budget in {ours.training.budget} and '{reference}' one "
            f"in {theirs.training.budget}; set training.budget for all arms alike"
        )
    # What bytes come to in steps is settled when the text has been read.
    if ours.training.budget == "tokens" and ours.tokens != theirs.tokens:
        raise ParibusError(
            f"arm '{arm}' would train on {ours.tokens} tokens and '{reference}' on "
            f"{theirs.tokens}; budgets must match exactly: state training.tokens for both, "
            "or training.budget = 'bytes' or 'flops'"
        )
    require_shared_text(arm, ours.data, reference, theirs.data)


def _require_float16(study: Study) -> None:
    trained = [study.setting(arm).training for arm in study.arms]
    if "float16" not in {one.precision for one in trained}:
        for one in trained:
            if one.loss_scale != LossScale():
                raise ParibusError(
                    f"training.loss_scale has no effect on precision '{one.precision}'; it is "
                    "of 'float16': leave it out"
                )


def _shortened(study: Study, arm: str, first: int) -> int:
    """Return iterations of a tuning trial of `arm` that cost what those of its reference cost."""
    reference = study.reference(arm)
    if reference is None:
        return first
    mine, other = study.setting(arm), study.setting(reference)
    share = mine.budget_iterations / other.budget_iterations
    return max(round(_shortened(study, reference, first) * share), 1)


FORMAT = StackedFormat()
