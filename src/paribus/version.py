"""The version of paribus: here alone, for the package, its records and its build."""

VERSION = "0.1.0"
