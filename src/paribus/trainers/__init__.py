"""Built-in trainers besides the engine: external programs, and finished runs."""
