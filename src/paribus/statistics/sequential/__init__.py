"""Looks at data that grow, and stages that were added: tests whose error holds all the same.

| question | function |
| --- | --- |
| when may a look at n pairs reject? | `Looks(...).boundaries(alpha)` |
| what does a test say at a look, over all looks? | `AtLook`: p, intervals, equivalence |
| is it worth going on? | `predictive_power` |
| what does a plan cost, and find? | `characteristics`, `detectable_effect` |
| a second stage that was not planned? | `InverseNormal`, `combined_mcnemar` |
| ... and what does it cost? | `stage_weights`, `error_of_either` |

>>> from paribus.statistics import Looks
>>> [round(boundary.nominal_p, 3) for boundary in Looks((5, 8, 12, 20)).boundaries()]
[0.0, 0.001, 0.007, 0.046]
"""

from .at_look import AtLook, OneLook, predictive_power
from .boundaries import Boundary, Looks, Spending
from .simulated import (
    Characteristics,
    characteristics,
    detectable_effect,
)
from .two_stages import (
    InverseNormal,
    Stages,
    combined_mcnemar,
    error_of_either,
    stage_weights,
)

__all__ = [
    "AtLook",
    "Boundary",
    "Characteristics",
    "InverseNormal",
    "Looks",
    "OneLook",
    "Spending",
    "Stages",
    "characteristics",
    "combined_mcnemar",
    "detectable_effect",
    "error_of_either",
    "predictive_power",
    "stage_weights",
]
