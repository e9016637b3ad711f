"""Every parameter of an arm: how it starts, and whether weight decay touches it."""

from __future__ import annotations

from dataclasses import dataclass

from paribus.engine.data import load_dataset
from paribus.engine.model import (
    GPT,
    build_model,
    initial_rules,
    parameter_uses,
    undeclared_projections,
)
from paribus.engine.rows import role
from paribus.engine.training.groups import parameter_groups
from paribus.study import Study, require_trust


@dataclass(frozen=True)
class ParameterRow:
    """A parameter, or the same one of several blocks.

    Attributes:
        name: with `*` for the number of the block.
        blocks: how many there are of it.
        shape: of each.
        rule: what gives it its initial value.
        std: of the distribution it is drawn from; 0 for a constant, None where its module decides.
        residual: whether its part declares that it writes to the residual stream.
        weight_decay: what it is decayed with.
        optimizer: which optimizer updates it, and at how many times the study's learning rate.
    """

    name: str
    blocks: int
    shape: tuple[int, ...]
    rule: str
    std: float | None
    residual: bool
    weight_decay: float
    optimizer: str


def parameter_rows(study: Study, arm: str) -> list[ParameterRow]:
    """Return the parameters of `arm` in the model's order, equal ones of all blocks in one row.

    Reads the text for its vocabulary. Raises ParibusError.
    """
    model, setting = _model(study, arm), study.setting(arm)
    uses, rules = parameter_uses(model), initial_rules(model, setting)
    groups = {
        name: (group, group.decays[0] if place < group.n_decayed else 0.0)
        for group in parameter_groups([setting], model, study.folder)
        for place, name in enumerate(group.names)
    }
    rows: dict[tuple[object, ...], int] = {}
    for name, parameter in model.named_parameters():
        rule, (group, decay) = rules[name], groups[name]
        updater = group.optimizer.name
        if group.factors[0] != 1:
            updater += f", {group.factors[0]:g} x rate"
        about = (rule.text, rule.std, uses[name].residual, decay, updater)
        key = (role(name).replace("blocks.", "blocks.*."), tuple(parameter.shape), *about)
        rows[key] = rows.get(key, 0) + 1
    return [ParameterRow(key[0], n, *key[1:]) for key, n in rows.items()]  # type: ignore[arg-type]


def parameter_warnings(study: Study) -> list[str]:
    """Return what the dry run would warn of, over all arms, each line once."""
    lines = [
        line
        for arm in study.arms
        for line in undeclared_projections(_model(study, arm), study.setting(arm))
    ]
    return list(dict.fromkeys(lines))


def _model(study: Study, arm: str) -> GPT:
    require_trust(study)
    setting = study.setting(arm)
    vocab_size = load_dataset(setting.data, study.folder).vocab_size
    own = setting.model.modules.named
    # A user's `init_parameter` may look at its module, so that has to hold values.
    return build_model(setting, vocab_size, study.folder, device="cpu" if own else "meta")
