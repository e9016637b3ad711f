"""Checks of an arm and of a trial: dry run, causality, repetition."""
