"""Checks that a results folder is consistent."""

from paribus.verification.verify import Verification, verify

__all__ = ["Verification", "verify"]
