"""What an arm and a trial must pass: dry run, causality, repetition."""
