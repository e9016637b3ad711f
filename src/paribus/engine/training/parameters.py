"""The parameters of an arm: initial value, weight decay and optimizer of each."""

from __future__ import annotations

from dataclasses import dataclass

from paribus.engine.data import load_dataset
from paribus.engine.model import build_model, initial_rules, parameter_uses
from paribus.engine.rows import role
from paribus.engine.training.groups import parameter_groups
from paribus.study import Study, require_trust


@dataclass(frozen=True)
class ParameterRow:
    """A parameter, or the same parameter of several blocks.

    Attributes:
        name: Its name, with `*` for the number of the block.
        blocks: Number of blocks that have it.
        shape: Shape of each.
        rule: Rule of its initial value.
        std: Standard deviation of its initial distribution; 0 for a constant, None if its module
            decides.
        residual: True if its part declares that it writes to the residual stream.
        weight_decay: Its weight decay.
        optimizer: Its optimizer, with a factor if its learning rate is not the study's.
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
    require_trust(study)
    setting = study.setting(arm)
    # A custom `init_parameter` may read its module, which must hold values then.
    device = "cpu" if setting.model.modules.named else "meta"
    vocab_size = load_dataset(setting.data, study.folder).vocab_size
    model = build_model(setting, vocab_size, study.folder, device=device)
    uses, rules = parameter_uses(model), initial_rules(model, setting)
    groups = {
        name: group
        for group in parameter_groups([setting], model, study.folder)
        for name in group.names
    }
    blocks: dict[tuple[object, ...], int] = {}
    for name, parameter in model.named_parameters():
        rule, group, factor = rules[name], groups[name], groups[name].factors[0]
        row = (
            role(name).replace("blocks.", "blocks.*."),
            tuple(parameter.shape),
            rule.text,
            rule.std,
            uses[name].residual,
            group.decays[0] if name in group.decayed else 0.0,
            group.optimizer.name + (f", {factor:g} x rate" if factor != 1 else ""),
        )
        blocks[row] = blocks.get(row, 0) + 1
    return [ParameterRow(row[0], n, *row[1:]) for row, n in blocks.items()]  # type: ignore[arg-type]
