"""Checks the durations that callers pass."""

from __future__ import annotations

import threading
from typing import Optional


def limit(name: str, seconds: Optional[float], longest: float = threading.TIMEOUT_MAX) -> Optional[float]:
    """Returns the limit of a wait in seconds; None if ``seconds`` is None or above ``longest``, which
    never passes in practice. Raises :class:`ValueError` if ``seconds`` is negative or not a number."""
    if seconds is None or seconds > longest:
        return None
    if not seconds >= 0:  # Also false for NaN.
        raise ValueError(f"{name} must be at least 0 seconds, not {seconds}")
    return seconds
