"""Reads the status of a leasehold daemon, follows its events, and holds its locks.

- :func:`read_status` reads the status file.
- :func:`follow` follows the event stream of a daemon on this machine.
- :class:`Lock` holds a lock through the program ``leasehold``.
- :mod:`leasehold.aio` does all this for asyncio.

A result can be out of date at any time: check it immediately before each effect, and send the token
with the effect.
"""

from .events import Follower, NotLeader, Term, follow
from .lock import HeldLock, Lock, LockError, LockLost, LockNotAcquired
from .status import Status, read_status

__all__ = [
    "Follower",
    "HeldLock",
    "Lock",
    "LockError",
    "LockLost",
    "LockNotAcquired",
    "NotLeader",
    "Status",
    "Term",
    "follow",
    "read_status",
]
