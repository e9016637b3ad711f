"""Checks that a results folder agrees with itself, and with what its weights give again."""

from paribus.verification.verify import Verification, verify

__all__ = ["Verification", "verify"]
