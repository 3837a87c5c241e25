"""Waits for changes that another thread observes."""

from __future__ import annotations

import threading
import time
from typing import Callable, Dict, Generic, Optional, TypeVar

# Waits are short because their clock stops while the machine is suspended.
POLL_SECONDS = 0.1

T = TypeVar("T")


class Changes(threading.Condition):
    """A condition that also wakes asyncio tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners: Dict[object, Callable[[], None]] = {}

    def announce(self) -> None:
        with self:
            self.notify_all()
        for listener in self.listeners.copy().values():  # Atomic, because tasks come and go.
            listener()


class Wait(Generic[T]):
    """A wait for a result. Threads and asyncio tasks wait in different ways, but look for the result
    in the same way."""

    def __init__(
        self,
        changes: Changes,
        look: Callable[[bool], Optional[T]],
        timeout: Optional[float],
        lasts: Callable[[], float] = lambda: POLL_SECONDS,
    ) -> None:
        """``look`` returns the result, or None if there is none yet. Its argument is True once the
        timeout has passed; then it returns a result or raises an error. ``lasts`` returns the seconds
        after which the result can change without an announcement."""
        timeout = limit("timeout", timeout)
        self.changes, self._look, self._lasts = changes, look, lasts
        self._end = None if timeout is None else time.monotonic() + timeout

    def look(self) -> Optional[T]:
        return self._look(self._end is not None and time.monotonic() >= self._end)

    def pause(self) -> float:
        """Returns the seconds until the next look."""
        pauses = [POLL_SECONDS, self._lasts()]
        if self._end is not None:
            pauses.append(max(self._end - time.monotonic(), 0.0))
        return min(pauses)

    def block(self) -> T:
        """Waits in this thread."""
        found = self.look()  # In a forked process, a thread of the parent may hold the condition.
        while found is None:
            with self.changes:
                found = self.look()
                if found is None:
                    self.changes.wait(self.pause())
        return found


def limit(name: str, seconds: Optional[float], longest: float = threading.TIMEOUT_MAX) -> Optional[float]:
    """Returns the limit of a wait in seconds; None if ``seconds`` is None or above ``longest``, which
    never passes in practice. Raises :class:`ValueError` if ``seconds`` is negative or not a number."""
    if seconds is None or seconds > longest:
        return None
    if not seconds >= 0:  # Also false for NaN.
        raise ValueError(f"{name} must be at least 0 seconds, not {seconds}")
    return seconds
