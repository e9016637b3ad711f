"""Who does the work of a run: the workers of one pool, or jobs of a scheduler (`jobs/crew.py`)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from paribus.engine.execution.checks.repeat import retrain
from paribus.engine.execution.start import Beginning, start
from paribus.engine.execution.workers.messages import TimeInTurn
from paribus.engine.execution.workers.pool import Pool
from paribus.results import ResultsFolder
from paribus.study import Study
from paribus.study.trainer import Trial

Say = Callable[[str], object]


class PoolCrew:
    """Workers of one pool."""

    def __init__(self, pool: Pool, workers: int | None, stack: int | None) -> None:
        self.pool, self._workers, self._stack = pool, workers, stack
        self.work = pool.work

    def start(self, begins: Beginning) -> tuple[Study, list[list[Trial]]]:
        """Start workers, try a step of every arm and register the study."""
        return start(self.pool, begins, self._workers, self._stack)

    def retrain(self, study: Study, folder: ResultsFolder, say: Say) -> None:
        """Train again what is registered to be."""
        retrain(self.pool, study, folder, say)

    def time(self, study: Study, folder: ResultsFolder, trials: Collection[Trial]) -> None:
        """Time all arms in turn; nothing else of ours runs then."""
        task = TimeInTurn(study.baseline, tuple(trials))
        self.pool.ask_fresh([task], [task.doing])
