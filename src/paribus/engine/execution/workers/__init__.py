"""The processes that do a run's work, and how they are spoken to."""
