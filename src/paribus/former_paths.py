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


class FormerPaths(MetaPathFinder, Loader):
    """Gives the module of today under its former name: one module, with two names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for what was moved; None for everything else."""
        package, _, rest = fullname.partition(".")
        room, dot, inside = rest.partition(".")
        if package != "paribus" or room not in MOVED:
            return None
        today = MOVED[room] + dot + inside
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
