"""The rules that ship, one file each: rows, conditions and words together."""
