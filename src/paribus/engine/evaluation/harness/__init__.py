"""Running trained models on tasks with the LM Evaluation Harness.

Importing this package does not load the harness; building tasks does.
"""
