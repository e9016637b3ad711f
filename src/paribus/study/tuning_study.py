"""The study that tunes another one: every arm with every candidate, on the tuning seeds.

It is a study like any other: registered, trained, sealed and read in the same way, in a folder of
its own. A candidate of an arm is compared with the same candidate of its reference, which is the
contrast at each shared value. Its trials are asked no questions, and not timed in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paribus import numbers
from paribus.errors import ParibusError
from paribus.study.load import NOT_CHOSEN, parse_study
from paribus.study.null_study import shortened
from paribus.study.study import LEARNING_RATE, Study
from paribus.study.tuning import Candidate, Tuning

# Where the records of tuning are, in the results folder: `tuning/1` and one for each extension.
FOLDER = "tuning"
# What a tuning study has its own of, or none.
OWN = {
    *("claims", "tuning", "decision", "hypotheses", "endpoints", "seeds", "tasks", "plan"),
    "stages",
}
TASKS = ("macro_accuracy", "task_accuracy")
ITERATIONS = "training.iterations"
_IDLE_MARGIN = 0.02  # of a metric without one: tuning has no verdict


def candidate_arm(arm: str, number: int) -> str:
    """What `arm` with candidate `number` (from 1, extensions counted on) is called."""
    return f"{arm}-{number}"


def tuning_study(study: Study, candidates: Sequence[Candidate], first: int = 1) -> Study:
    """Every arm of `study` with each of `candidates`, the first of which has the number `first`.

    Raises ParibusError where an arm cannot be trained with one of them, and where the candidates
    would be trained on budgets of different size.
    """
    tuning = _of(study)
    table = study.model_dump(exclude=OWN)
    asks = tuning.select.partition("/")[0] in TASKS
    margins = {endpoint.metric: endpoint.margin for endpoint in study.endpoints}
    margin = margins.get(tuning.select) or _IDLE_MARGIN
    table |= {
        "name": shortened(study.name, "-tuning"),
        "title": f"tuning of {study.title or study.name}",
        "seeds": list(tuning.seeds),
        "baseline": candidate_arm(study.baseline, first),
        "tasks": study.tasks.model_dump() if asks else {"names": []},
        "endpoints": [{"metric": tuning.select, "primary": True, "margin": margin}],
        "evaluation": study.evaluation.model_dump() | {"every": None, "target": None},
        "arms": {},
    }
    table["training"] |= {"keep": (), "keep_every": None}  # nobody goes back to these
    if tuning.iterations is not None:
        table["training"] |= {"iterations": tuning.iterations, "tokens": None}
    for number, candidate in enumerate(candidates, start=first):
        for arm, spec in study.arms.items():
            table["arms"][candidate_arm(arm, number)] = {
                "title": f"{spec.title or arm}, {in_words(candidate)}",
                "set": spec.set | _matched(study, arm) | candidate,
                "against": candidate_arm(study.reference(arm) or arm, number),
            }
    label = f"tuning of {study.name}"
    made = parse_study(table, folder=study.folder, label=label, foreign=study.is_foreign)
    _require_equal_budgets(study, made, first)
    return made


def _matched(study: Study, arm: str) -> dict[str, int]:
    """The shorter trials of an arm whose iterations follow from its reference's, as its own do."""
    if _of(study).iterations is None or ITERATIONS not in study.arms[arm].set:
        return {}
    return {ITERATIONS: _shortened(study, arm)}


def _shortened(study: Study, arm: str) -> int:
    """Iterations of a tuning trial of `arm` that cost what those of its reference cost."""
    reference, first = study.reference(arm), _of(study).iterations
    if reference is None:
        return first or study.setting(arm).iterations
    mine, other = study.setting(arm), study.setting(reference)
    share = mine.iterations / other.iterations
    if mine.training.step_cost and other.training.step_cost:  # which iterations are rounded from
        share = other.training.step_cost / mine.training.step_cost
    return max(round(_shortened(study, reference) * share), 1)


def _of(study: Study) -> Tuning:
    """The plan of a study that has one."""
    if study.tuning is None:
        raise ParibusError(f"study '{study.name}' tunes nothing; it has no [tuning]")
    return study.tuning


def _require_equal_budgets(study: Study, made: Study, first: int) -> None:
    numbers = range(first, first + len(made.arms) // len(study.arms))
    for arm in study.arms:
        budgets = {n: made.setting(candidate_arm(arm, n)).tokens for n in numbers}
        if len(set(budgets.values())) > 1:
            least, most = min(budgets.values()), max(budgets.values())
            raise ParibusError(
                f"tuning would train '{arm}' on {least} tokens with one candidate and on {most} "
                "with another; every trial has the same budget: state training.tokens"
            )


def require_tunable(study: Study) -> None:
    """Raise ParibusError where some tuning trial of `study` could not be trained, or is unfair."""
    tuning = _of(study)
    for arm, spec in study.arms.items():
        own = {"training.iterations", "training.tokens"} & spec.set.keys()
        if tuning.iterations is not None and own and study.training.budget == "tokens":
            raise ParibusError(
                f"tuning.iterations = {tuning.iterations}, and arm '{arm}' sets {min(own)}; leave "
                "one out"
            )
    tuning_study(study, tuning.candidates)
    known = set(study.arms)
    for arm, values in tuning.chosen.items():
        if arm not in known or values.keys() != set(tuning.keys):
            raise ParibusError(NOT_CHOSEN)


def with_choice(study: Study, chosen: Mapping[str, Candidate]) -> Study:
    """`study` with what was chosen for each arm; an empty choice takes it back.

    Raises ParibusError where an arm cannot be trained so.
    """
    table = study.model_dump()
    table["tuning"]["chosen"] = {arm: dict(values) for arm, values in chosen.items()}
    return parse_study(table, folder=study.folder, foreign=study.is_foreign, sealed=study.sealed)


def is_untuned(study: Study) -> bool:
    """Whether the study's arms are still to be tuned."""
    return study.tuning is not None and not study.tuning.chosen


def in_words(values: Candidate) -> str:
    """`learning_rate 3e-4`: values by the last part of their keys."""
    return ", ".join(f"{key.rpartition('.')[2]} {_shown(value)}" for key, value in values.items())


def _shown(value: bool | float | str) -> str:
    if isinstance(value, (bool, str)):
        return str(value)
    return numbers.compact(value)


def at_rates(study: Study, arm: str, reference: str) -> str:
    """`at this learning rate (3e-4, not tuned)`: what a verdict on the two must add."""
    tuning = study.tuning
    if tuning is not None and LEARNING_RATE in tuning.keys:
        return _tuned(study, tuning, arm, reference)
    how = "not tuned"
    if tuning is not None:
        keys = ", ".join(key.rpartition(".")[2] for key in tuning.keys)
        how = f"not tuned, unlike {keys}"
    rates = [study.setting(a).training.optimizer.learning_rate for a in (reference, arm)]
    if rates[0] == rates[1]:
        return f"at this learning rate ({numbers.compact(rates[0])}, {how})"
    theirs, ours = map(numbers.compact, rates)
    return f"at these learning rates ({ours} against {theirs}, {how})"


def _tuned(study: Study, tuning: Tuning, arm: str, reference: str) -> str:
    """`with each arm at its best of the learning rates tried (3e-3 against 1e-3)`."""
    only = len(tuning.keys) == 1
    what = "learning rates" if only else "settings"
    how = f"with each arm at its best of the {what} tried"
    if not tuning.chosen:
        return f"{how} (not chosen yet)"
    chosen = [tuning.chosen[a] for a in (reference, arm)]
    theirs, ours = (_shown(*one.values()) if only else in_words(one) for one in chosen)
    return f"{how} ({ours}{'' if ours == theirs else f' against {theirs}'})"
