"""Holds a lock through ``leasehold lock NAME``, which keeps it until its standard input closes."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from types import TracebackType
from typing import Callable, List, Optional, Sequence, Type

_NOT_ACQUIRED = 75
# Codes of `leasehold` after its input was closed: done, or done after a stop signal.
_RELEASED = (0, 128 + 1, 128 + 2, 128 + 3, 128 + 15)
# `leasehold` waits for MongoDB for at most 5 s.
RELEASE_SECONDS = 10.0
_LINE_BYTES_MAX = 4096


class LockError(Exception):
    """The lock could not be acquired: ``leasehold`` failed, and its error is on standard error."""

    def __init__(self, message: str, code: Optional[int] = None) -> None:
        super().__init__(message)
        self.code = code
        """The exit code of ``leasehold``, negative after a signal; None if it did not exit."""


class LockNotAcquired(LockError):
    """Another process held the lock, and the wait for it was over."""


class LockLost(LockError):
    """The lock was lost. Its work must stop: another process may hold the lock."""


class HeldLock:
    """A lock that this process holds. Once it is lost or released, it stays so."""

    name: str
    token: int
    """The fencing token."""
    slot: Optional[int]
    """The number of the slot, if the lock has slots."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        name: str,
        token: int,
        slot: Optional[int],
        on_lost: Optional[Callable[[], object]],
    ) -> None:
        self.name, self.token, self.slot = name, token, slot
        self._process = process
        self._on_lost = on_lost
        self._ended = threading.Event()
        self._released = False
        # A forked process does not know if the lock is still held.
        self._owner = os.getpid()
        threading.Thread(target=self._watch, name="leasehold-lock", daemon=True).start()

    def is_valid(self) -> bool:
        """Returns True if the lock is held, as far as ``leasehold`` has reported."""
        if os.getpid() != self._owner:
            return False
        if self._process.poll() is not None:
            self._ended.set()
        return not self._ended.is_set()

    def check(self) -> None:
        """Raises :class:`LockLost` unless the lock is held. Call it before each effect."""
        if not self.is_valid():
            raise LockLost(f"lock {self.name} is no longer held", self._process.returncode)

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the lock is lost or released. Returns False if it is still held after
        ``timeout`` seconds."""
        return self._ended.wait(timeout)

    def release(self) -> None:
        """Releases the lock. Raises :class:`LockLost` if it was lost before."""
        if self._released:
            return
        lost = not self.is_valid()
        self._released = True
        self._ended.set()
        code = _close(self._process)
        if lost or code not in _RELEASED:
            raise LockLost(f"lock {self.name} was lost", code)

    def _watch(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            while output.read(_LINE_BYTES_MAX):
                pass  # The end of its output is the end of the process.
        self._ended.set()
        if not self._released and self._on_lost is not None:
            self._on_lost()


class Lock:
    """A lock to acquire. In a ``with`` statement it is held until the end of the block::

        with Lock("nightly-report", wait=30) as held:
            for part in parts:
                held.check()
                report(part, fencing_token=held.token)

    The end of the block raises :class:`LockLost` if the lock was lost, unless another exception
    leaves it.
    """

    def __init__(
        self,
        name: str,
        *,
        wait: Optional[float] = None,
        shared: bool = False,
        slots: Optional[int] = None,
        arguments: Sequence[str] = (),
        program: str = "leasehold",
        on_lost: Optional[Callable[[], object]] = None,
    ) -> None:
        """``wait`` is the maximum wait for other holders in seconds: None for no limit, 0 for no
        wait. ``arguments`` are further flags of ``leasehold lock``, such as
        ``--mongodb-uri-file=PATH``. ``on_lost`` is called in a thread when the lock is lost.
        """
        self._name, self._slots, self._on_lost = name, slots, on_lost
        self._command: List[str] = [program, "lock", name, *arguments]
        if wait is not None:
            self._command.append("--no-wait" if wait <= 0 else f"--wait={wait * 1000:.0f}ms")
        if shared:
            self._command.append("--shared")
        if slots is not None:
            self._command.append(f"--slots={slots}")
        self._held: List[HeldLock] = []

    def acquire(self) -> HeldLock:
        """Waits for the lock. The caller must release it.

        Raises :class:`LockNotAcquired` if another process holds it, and :class:`LockError` if
        ``leasehold`` fails. Standard error is that of this process.
        """
        pipe = subprocess.PIPE
        process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, bufsize=0)
        assert process.stdout is not None
        try:
            line = b""
            while not line.endswith(b"\n") and len(line) < _LINE_BYTES_MAX:
                byte = process.stdout.read(1)
                if not byte:
                    break
                line += byte
            if not line:
                raise _not_acquired(self._name, process.wait())
            token, slot = self._holder(line)
            return HeldLock(process, self._name, token, slot, self._on_lost)
        except BaseException:
            # While it waits, it does not read its input.
            process.terminate()
            _close(process)
            process.stdout.close()
            raise

    def _holder(self, line: bytes) -> "tuple[int, Optional[int]]":
        """Returns the token and the slot that a complete line of this lock has."""
        try:
            held = json.loads(line) if line.endswith(b"\n") else None
        except (ValueError, RecursionError):
            held = None
        if isinstance(held, dict) and held.get("lock") == self._name:
            token, slot = held.get("token"), held.get("slot")
            has_slot = type(slot) is int if self._slots is not None else slot is None
            if type(token) is int and token >= 1 and has_slot:
                return token, slot
        raise LockError(f"lock {self._name}: leasehold printed an unexpected line: {line!r}")

    def __enter__(self) -> HeldLock:
        held = self.acquire()
        self._held.append(held)
        return held

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            self._held.pop().release()
        except LockLost:
            if error is None:
                raise


def _not_acquired(name: str, code: int) -> LockError:
    if code == _NOT_ACQUIRED:
        return LockNotAcquired(f"lock {name} is held by another process", code)
    return LockError(f"lock {name}: leasehold exited with code {code}", code)


def _close(process: "subprocess.Popen[bytes]") -> int:
    """Closes the input of ``leasehold``, waits for its exit, and returns its code."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        return process.wait(RELEASE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
