"""The version of paribus, for the package, its records and its build."""

VERSION = "0.1.0"
