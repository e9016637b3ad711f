"""Import paths of earlier versions keep working: `paribus.probes` is `paribus.engine.probes`.

Own parts beside a study, also those kept in results folders, import by the names of their day.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    name: f"paribus.engine.{name}"
    for name in (
        *("data", "evaluation", "execution", "export", "machine", "model"),
        *("observation", "probes", "rows", "tasks", "training"),
    )
} | {"kernels": "paribus.engine.ops.kernels"}
# Files of `study` that are the engine's.
SETTING = {
    f"paribus.study.{former}": f"paribus.engine.setting.{today}"
    for former, today in {
        "spec": "setting",
        **{name: name for name in ("architecture", "curve", "data", "precision", "presets")},
        "treatment": "treatment",
    }.items()
}
# Modules of the engine whose content others have now.
JOINED = SETTING | {
    f"paribus.engine.{former}": f"paribus.engine.{today}"
    for former, today in {
        "model.attention": "model.attentions.causal",
        "model.config": "model.parts",
        "model.dropout": "model.layers",
        "model.embedding": "model.gpt",
        "model.head": "model.gpt",
        "model.key_value_cache": "model.attentions",
        "model.linear": "model.layers",
        "model.mlps.gelu": "model.mlps.ungated",
        "model.mlps.gelu_tanh": "model.mlps.ungated",
        "model.mlps.relu2": "model.mlps.ungated",
        "model.norms.center": "model.norms.layernorm",
        "model.norms.fixed_scale": "model.norms.constant",
        "model.norms.none": "model.norms.constant",
        "model.norms.rms_free": "model.norms.rmsnorm",
        "model.positions.none": "model.positions.learned",
    }.items()
}


class FormerPaths(MetaPathFinder, Loader):
    """Gives the module of today under its former name: one module, with two names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for what was moved; None for everything else."""
        package, _, rest = fullname.partition(".")
        room, dot, inside = rest.partition(".")
        name = MOVED[room] + dot + inside if package == "paribus" and room in MOVED else fullname
        today = JOINED.get(name, name)
        if today == fullname:
            return None
        return ModuleSpec(fullname, self, origin=today, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module of today."""
        module = importlib.import_module(str(spec.origin))
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Keep the module's own spec: it has run already."""
        module.__spec__ = self._own_spec


def keep_former_paths() -> None:
    """Find moved modules under their former names, after every other finder has been asked."""
    if not any(isinstance(finder, FormerPaths) for finder in sys.meta_path):
        sys.meta_path.append(FormerPaths())
