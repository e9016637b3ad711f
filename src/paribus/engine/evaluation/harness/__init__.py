"""The LM Evaluation Harness: a trained model in it, tasks run through it, and what ran pinned.

Importing its modules does not load the harness; what builds tasks does.
"""
