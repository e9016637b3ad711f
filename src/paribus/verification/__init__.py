"""Consistency checks of results folders."""

from paribus.verification.verify import Verification, verify

__all__ = ["Verification", "verify"]
