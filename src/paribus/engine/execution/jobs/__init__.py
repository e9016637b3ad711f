"""Trials as jobs of a scheduler: submitted, followed and found again by files alone.

`folder` is the scratch folder that they share, `crew` submits and follows them, `job` is what each
of them runs, and `standing` is what `paribus status` and `cancel` do.
"""
