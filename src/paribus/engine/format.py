"""Study format of the built-in engine, which does not import PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from paribus.engine.setting import Evaluation, Probes, Setting, Tasks
from paribus.engine.setting.architecture import PRESET, preset_values
from paribus.engine.setting.sections import curve_steps
from paribus.errors import ParibusError
from paribus.study import Study
from paribus.study.protocol import StudyFormat
from paribus.study.trainer import ArmFacts, StudyFacts

PRECISION = "training.precision"
ITERATIONS = "training.iterations"
# What a budget is or is measured by, and what is kept: the same for every candidate.
FIXED = (
    *("training.iterations", "training.tokens", "training.budget", "training.precision"),
    *("training.keep", "training.keep_every", "model.preset", "model.modules"),
)
TUNABLE = ("training.", "model.")


class Sections(Setting):
    """Sections of a study file that the engine reads."""

    probes: Probes = Probes()
    evaluation: Evaluation = Evaluation()
    tasks: Tasks = Tasks()


# Corpora that are downloaded once if neither PARIBUS_DATA nor the cache has them.
DOWNLOADED = ("shakespeare", "huggingface")


LOSS = {"metric": "validation_loss", "primary": True, "margin": 0.02, "smallest_effect": 0.02}
SECONDARY = (
    *("validation_perplexity", "validation_accuracy", "calibration_error", "brier_score"),
    "macro_accuracy",
)


class StackedFormat(StudyFormat):
    """Study format of the built-in engine."""

    model, setting_model = Sections, Setting
    loss = "validation_loss"
    defaults = MappingProxyType({"endpoints": (LOSS, *({"metric": name} for name in SECONDARY))})

    free = (
        ("probes", "every"),
        ("data", "mixture"),
        ("training", "optimizer", "options"),
        ("training", "loss", "options"),
        ("training", "loss", "auxiliary"),
        ("training", "schedule", "options"),
        ("training", "average", "options"),
    )
    alternatives = MappingProxyType({ITERATIONS: "training.tokens", "training.tokens": ITERATIONS})

    def expand(self, overrides: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Expand a preset into dotted overrides, placed first so that other keys override them."""
        expanded: list[tuple[str, Any]] = []
        if PRESET in overrides:
            values = preset_values(overrides[PRESET])
            expanded += [(f"model.{part}", value) for part, value in values.items()]
            expanded.append((PRESET, overrides[PRESET]))
        return expanded + [(key, value) for key, value in overrides.items() if key != PRESET]

    def validate(self, study: Study) -> None:
        """Raise ParibusError if the study's arms cannot be compared."""
        if study.evaluation.target is not None and study.evaluation.every is None:
            raise ParibusError(
                f"evaluation.target = {study.evaluation.target:g} requires a held-out loss curve; "
                "set evaluation.every to the number of steps between its points",
                code="missing",
            )
        for arm, spec in study.arms.items():
            if self.alternatives.keys() <= spec.set.keys():
                raise ParibusError(
                    f"arm '{arm}' sets both training.tokens and training.iterations; remove one",
                    code="conflict",
                )
            if spec.set.get(PRECISION) == "auto":
                raise ParibusError(
                    f"arm '{arm}' sets {PRECISION} = 'auto', which must apply to all arms; set it "
                    "in the [training] section instead"
                )
            setting: Setting = study.setting(arm)
            reference = study.reference(arm)
            if reference is not None:
                _require_comparable(arm, setting, reference, study.setting(reference))

    def tuning_problem(self, key: str) -> str:
        """Return an error message if a key cannot be tuned, or "" if it can."""
        if key.startswith(TUNABLE) and not key.startswith(FIXED):
            return ""
        return (
            f"{key} cannot be tuned; tune keys in [training] or [model], except budgets, "
            "precision, training.keep, training.keep_every, model.preset and model.modules"
        )

    def tuning_sections(self, study: Study, *, asks: bool) -> dict[str, Any]:
        """Return the sections that differ in tuning trials, which record fewer measurements.

        Args:
            asks: whether tuning trials are evaluated on the study's tasks.
        """
        training = study.training.model_dump() | {"keep": (), "keep_every": None}
        if study.tuning is not None and study.tuning.iterations is not None:
            training |= {"iterations": study.tuning.iterations, "tokens": None}
        return {
            "tasks": study.tasks.model_dump() if asks else {"names": []},
            "evaluation": study.evaluation.model_dump() | {"every": None, "target": None},
            "training": training,
        }

    def tuning_overrides(self, study: Study, arm: str) -> dict[str, Any]:
        """Return an arm's additional overrides in tuning trials.

        If the arm overrides training.iterations, it gets tuning.iterations, scaled by the ratio of
        its budget to the baseline's.
        """
        assert study.tuning is not None
        if study.tuning.iterations is None or ITERATIONS not in study.arms[arm].set:
            return {}
        budget, base = (study.setting(a).budget_iterations for a in (arm, study.baseline))
        return {ITERATIONS: max(round(study.tuning.iterations * (budget / base)), 1)}

    def facts(self, study: Study) -> StudyFacts:
        """Return the study-level values that reports use."""
        texts = []
        for data in dict.fromkeys(study.setting(arm).data for arm in study.arms):
            names = [data.tokenizer_file] if data.tokenizer_file is not None else []
            texts += [(study.folder / name).resolve() for name in (*names, *data.texts)]
        return StudyFacts(
            target=study.evaluation.target,
            seals_test=bool(study.data.test_fraction or study.data.test_path),
            texts=tuple(texts),
        )

    def arm_facts(self, study: Study, arm: str) -> ArmFacts:
        """Return the arm-level values that reports use."""
        setting: Setting = study.setting(arm)
        return ArmFacts(
            steps=setting.iterations,
            tokens=setting.tokens,
            learning_rate=setting.training.optimizer.learning_rate,
            tokenizer=str(setting.data.tokenizer),
            curve_tokens=tuple(map(setting.tokens_before, curve_steps(study, arm))),
        )


def _require_comparable(arm: str, ours: Setting, reference: str, theirs: Setting) -> None:
    """Raise ParibusError if two arms have different budgets or held-out tokens.

    Held-out texts are compared later, when they are read.
    """
    if ours.training.budget != theirs.training.budget:
        raise ParibusError(
            f"arm '{arm}' has training.budget = '{ours.training.budget}', but '{reference}' has "
            f"'{theirs.training.budget}'; set the same training.budget for all arms"
        )
    # Budgets in bytes are converted to steps after the text has been read.
    if ours.training.budget == "tokens" and ours.tokens != theirs.tokens:
        raise ParibusError(
            f"arm '{arm}' would train on {ours.tokens} tokens and '{reference}' on "
            f"{theirs.tokens}, but token budgets must match exactly; set training.tokens for both, "
            "or set training.budget = 'bytes' or 'flops'"
        )
    n_tokens = {ours.data.validation_tokens, theirs.data.validation_tokens}
    if n_tokens != {None} and (len(n_tokens) > 1 or ours.data.tokenizer != theirs.data.tokenizer):
        raise ParibusError(
            f"arms '{arm}' and '{reference}' are evaluated on different text, because their "
            "data.validation_tokens or tokenizers differ; remove data.validation_tokens",
            code="incomparable",
        )


FORMAT = StackedFormat()
