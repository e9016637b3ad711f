"""What this machine can do: its memory, its speed, and where trials ran."""
