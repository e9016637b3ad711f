"""Checks that a results folder agrees with itself."""

from paribus.verification.verify import Verification, verify

__all__ = ["Verification", "verify"]
