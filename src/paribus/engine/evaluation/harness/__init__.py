"""Evaluation of trained models on tasks with the LM Evaluation Harness (`lm_eval`).

The harness is imported only when tasks are built.
"""
