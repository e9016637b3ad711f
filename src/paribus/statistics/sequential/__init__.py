"""Looks at data that grow, and stages that were added: tests whose error holds all the same.

| question | function |
| --- | --- |
| when may a look at n pairs reject? | `Looks(...).boundaries(alpha)` |
| what does a test say at a look, over all looks? | `AtLook`: p, intervals, equivalence |
| is it worth going on? | `predictive_power` |
| what does a plan find? | `detectable_effect` |
| a second stage that was not planned? | `InverseNormal`, `combined_mcnemar` |
| ... and what does it cost? | `stage_weights`, `error_of_either` |

>>> from paribus.statistics import Looks
>>> [round(boundary.nominal_p, 3) for boundary in Looks((5, 8, 12, 20)).boundaries()]
[0.0, 0.001, 0.007, 0.046]
"""
