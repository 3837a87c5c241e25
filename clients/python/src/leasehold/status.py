"""The status of a candidate, from the file ``status.json`` or from an event."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path
from typing import Any, Mapping, Optional, Tuple, Union

_SCHEMA = 1
# Maximum of a token and of a deadline.
_NUMBER_MAX = 2**63 - 1
# A status has at most a few KiB. A longer text is not a status.
BYTES_MAX = 64 * 1024
# This system has no such file or denies access to it. Other errors, such as EMFILE, may be
# temporary.
_UNREADABLE = (FileNotFoundError, PermissionError)


class Status:
    """A snapshot of a candidate's status, with its deadline.

    The snapshot is invalid after the deadline, and may be out of date even earlier. Read it again
    before each effect.
    """

    __slots__ = ("document", "_grant")

    document: Mapping[str, Any]
    """All fields as they were written, for log messages; empty if they could not be read.
    The field ``leader`` alone does not prove leadership."""

    def __init__(self, text: Optional[bytes], *, boot_id_required: bool = False) -> None:
        try:
            document = json.loads(text or b"")
        except (ValueError, RecursionError):
            document = None
        self.document = document if isinstance(document, dict) else {}
        self._grant = _grant(self.document, boot_id_required)

    def token(self) -> Optional[int]:
        """Returns the fencing token if the candidate leads at this instant, otherwise None."""
        if self._grant is None or self._grant[1] <= _boottime_ns():
            return None
        return self._grant[0]

    def is_leader(self) -> bool:
        """Returns True if the candidate leads at this instant."""
        return self.token() is not None

    def valid_for(self) -> float:
        """Returns the seconds until the deadline; 0.0 if the candidate does not lead."""
        left = 0 if self._grant is None else self._grant[1] - _boottime_ns()
        return max(left, 0) / 1e9


def read_status(directory: Union[str, "os.PathLike[str]"]) -> Status:
    """Reads ``status.json`` in a status directory.

    If the file is missing or damaged, the status reports "not leader", and no error is raised.
    """
    try:
        with open(Path(directory, "status.json"), "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return Status(None)
            text = file.read(BYTES_MAX + 1)
    except OSError:
        return Status(None)
    return Status(text if len(text) <= BYTES_MAX else None)


def _open_at_once(path: str, flags: int) -> int:
    """Opens a file. Does not block on a FIFO without a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _grant(document: Mapping[str, Any], boot_id_required: bool) -> Optional[Tuple[int, int]]:
    """Returns the token and the deadline of a leader of this boot, if both are valid."""
    token, deadline = document.get("token"), document.get("valid_until_boottime_ns")
    schema = document.get("schema")
    # In Python, True is an int that equals 1.
    if document.get("leader") is not True or type(schema) is not int or schema != _SCHEMA:
        return None
    if type(token) is not int or type(deadline) is not int:
        return None
    if not 1 <= token <= _NUMBER_MAX or not 1 <= deadline <= _NUMBER_MAX:
        return None
    if not _is_this_boot(document, boot_id_required) or not _is_this_clock(document):
        return None
    return token, deadline


def _is_this_boot(document: Mapping[str, Any], boot_id_required: bool) -> bool:
    """Returns False if the status is from another boot, if the boot is unknown and required, or if the
    boot could not be read at this instant."""
    if "boot_id" not in document:
        return False
    try:
        ours = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except _UNREADABLE:
        ours = None
    except OSError:
        return False
    theirs = document["boot_id"]
    if theirs is None or ours is None:
        return not boot_id_required
    return bool(theirs == ours)


def _is_this_clock(document: Mapping[str, Any]) -> bool:
    """Returns False if the deadline is from another time namespace, whose clock differs."""
    theirs = document.get("time_namespace")
    try:
        ours = os.stat("/proc/self/ns/time").st_ino
    except _UNREADABLE:
        return True
    except OSError:
        return False
    return theirs is None or (type(theirs) is int and theirs == ours)


def _boottime_ns() -> int:
    """CLOCK_BOOTTIME. Unlike CLOCK_MONOTONIC, it continues while the machine is suspended."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
