"""Costs and speeds of a study, a step and an arm."""
