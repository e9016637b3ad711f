"""Workers of one pool that do the work of a run; jobs of a scheduler are in `jobs/crew.py`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from paribus.engine.execution.start import Beginning, start
from paribus.engine.execution.workers.messages import TimeInTurn, TrainAgain
from paribus.engine.execution.workers.pool import Pool
from paribus.results import ResultsFolder
from paribus.results.registration import repetitions
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
        """Repeat the first steps of registered trials in new processes; write `repeated.json`.

        A trial of another machine cannot be compared to the bit: then the control stays open.
        """
        done = folder.read_repeated(study.arms)
        tasks = [
            TrainAgain(arm, repetition["seed"], repetition["steps"])
            for arm, repetition in repetitions(folder).items()
            if arm not in done
        ]
        if not tasks:
            return
        for steps in dict.fromkeys(task.steps for task in tasks):
            labels = [f"{task.arm}/seed-{task.seed}" for task in tasks if task.steps == steps]
            say(f"training again {steps} steps of {', '.join(labels)}")
        doing = [f"on {task.arm}/seed-{task.seed}, which it trained again" for task in tasks]
        for task, answer in zip(tasks, self.pool.ask_fresh(tasks, doing), strict=True):
            if answer.elsewhere:
                logging.getLogger("paribus").warning(
                    "%s/seed-%d cannot be trained again to the same bits here (another %s); the "
                    "control 'repeatable' is not proven",
                    *(task.arm, task.seed, ", ".join(answer.elsewhere)),
                )
                continue
            done[task.arm] = {
                "seed": task.seed,
                "steps": task.steps,
                "trial": folder.trial(task.arm, task.seed).seal,
                "differs_at": answer.differs_at,
                "differs": answer.differs,
            }
        if done:
            folder.write_repeated(done)

    def time(self, study: Study, folder: ResultsFolder, trials: Collection[Trial]) -> None:
        """Time all arms in turn; nothing else of ours runs then."""
        task = TimeInTurn(study.baseline, tuple(trials))
        self.pool.ask_fresh([task], [task.doing])
