"""Trainers: what turns (arm, seed) into records. The port is `paribus.study.trainer.Trainer`.

`stacked`, the engine that ships, writes its own records (`paribus.engine.execution`). Of any other
trainer, `run` registers what it declares, asks it for the trials that are missing, and seals them.
"""

from paribus.trainers.looking import take_look
from paribus.trainers.run import register, results_folder, run, try_briefly
from paribus.trainers.tune import tune

__all__ = ["register", "results_folder", "run", "take_look", "try_briefly", "tune"]
