"""Holds a lock: runs ``leasehold lock NAME``, which holds the lock until its input closes."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
import weakref
from concurrent.futures import Future
from types import FrameType, TracebackType
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Type

from .waits import Changes, Wait, limit

_NOT_ACQUIRED = 75
# Longest wait that the program accepts.
_WAIT_SECONDS_MAX = 31 * 24 * 3600
# Exit codes with which `leasehold` confirms a release: success, or a stop signal.
_RELEASED = (0, 128 + 1, 128 + 2, 128 + 3, 128 + 15)
# `leasehold` waits for MongoDB for at most 5 s.
RELEASE_SECONDS = 10.0
# Maximum time until the exit after SIGKILL, or after the output has ended.
EXIT_SECONDS = 1.0
_LINE_BYTES_MAX = 4096


class LockError(Exception):
    """The lock could not be acquired, because ``leasehold`` failed."""

    def __init__(self, message: str, code: Optional[int] = None) -> None:
        super().__init__(message)
        self.code = code
        """The exit code of ``leasehold``, negative after a signal; None if it did not exit."""


class LockNotAcquired(LockError):
    """Another process held the lock until the wait ended."""


class LockLost(LockError):
    """The lock was lost. Stop the work: another process may hold the lock."""


# Held during a fork, and while a process is being started. Reentrant, because a signal handler may
# fork.
_forking = threading.RLock()
# The inputs of all running programs. A fork must not keep them open.
_inputs: "weakref.WeakSet[socket.socket]" = weakref.WeakSet()


def _close_inputs() -> None:
    """Closes the inputs in a forked child. A shutdown would release the parent's lock."""
    for one in list(_inputs):
        one.close()
    _inputs.clear()
    _forking.release()


os.register_at_fork(
    before=_forking.acquire, after_in_parent=_forking.release, after_in_child=_close_inputs
)


class _Program:
    """A running ``leasehold lock``, whose standard input is a socket.

    Unlike the end of a pipe, a socket can be shut down for all processes that share it. A process
    that a C library has forked therefore does not delay a release.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.owner = os.getpid()
        self.ended = threading.Event()
        self.changes = Changes()
        """Announces the end."""
        self.abandoned = False
        """True if the lock is no longer needed, so that a loss is not reported."""
        self.kept: "Optional[HeldLock]" = None
        """The lock, if its user may rely on `on_lost` alone. This reference keeps it alive."""
        self.reported: Optional[int] = None
        """The exit code that the last line of the output reports. Only this code proves a release: the
        process's exit code may be unknown, or come from another program that runs `leasehold`."""
        self.code: Optional[int] = None
        """The exit code that messages name."""
        self._reading = threading.Lock()
        """Held by the thread that reads the output until the program closes it."""
        with _forking:
            self._input, theirs = socket.socketpair()
            _inputs.add(self._input)
            try:
                # A separate session, because only this process should get Ctrl-C. The input closes
                # when this process exits.
                self._process = subprocess.Popen(
                    command,
                    stdin=theirs.fileno(),
                    stdout=subprocess.PIPE,
                    bufsize=0,
                    start_new_session=True,
                )
            except BaseException:
                self._input.close()
                raise
            finally:
                theirs.close()
        assert self._process.stdout is not None
        self.output = self._process.stdout

    def first_line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n") and len(line) < _LINE_BYTES_MAX:
            byte = self.output.read(1)
            if not byte:
                break
            line += byte
        return line

    def is_running(self) -> bool:
        if os.getpid() != self.owner:
            return False
        # The reader closes the output when the output ends.
        return self._process.poll() is None and not self.output.closed

    def shut_down(self) -> None:
        """Closes the input of the program, so that the program releases the lock or leaves the queue.
        Does not wait, and does nothing in a forked process."""
        if os.getpid() != self.owner:
            return
        try:
            self._input.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # The program has exited, or the input is closed.
        self._input.close()

    def give_up(self) -> None:
        """Gives up a lock that is no longer needed, without waiting."""
        self.abandoned = True
        self.kept = None
        self.shut_down()

    def watch(self, name: str, on_lost: Optional[Callable[[], object]]) -> None:
        """Starts the thread that reads the output until the program closes it."""
        run, arguments = self._watch, (name, on_lost)
        threading.Thread(target=run, args=arguments, name="leasehold-lock", daemon=True).start()

    def close(self, name: str, rest: bytes = b"") -> Optional[int]:
        """Ends a program that does not hold the lock, and returns its exit code."""
        self.give_up()
        self._signal(signal.SIGTERM)  # The program may be something other than `leasehold`.
        self._finish(name, rest, RELEASE_SECONDS)
        return self.code

    def wait(self, limit: Optional[float] = None) -> None:
        """Waits until the watched program has exited, and kills the program after a limit. Does not
        wait for the thread that reads the output, because a descendant may keep the output open."""
        if not self.ended.wait(RELEASE_SECONDS if limit is None else limit):
            self.code = self._kill()

    def _watch(self, name: str, on_lost: Optional[Callable[[], object]]) -> None:
        try:
            self._finish(name, b"")
            if not self.abandoned and on_lost is not None:
                on_lost()
        finally:
            self.kept = None

    def _finish(self, name: str, text: bytes, limit: Optional[float] = None) -> None:
        """Reads the output to its end, unless another thread reads it, and waits for the exit. Kills
        the program after ``limit`` seconds. Starts no thread, because the thread
        limit may be reached."""
        end = None if limit is None else time.monotonic() + limit
        if not self._reading.acquire(timeout=-1 if limit is None else limit):
            self._kill()
            return
        try:
            if self.ended.is_set():
                return
            with self.output as output:
                for part in iter(lambda: self._read(output, end), b""):
                    text = (text + part)[-_LINE_BYTES_MAX:]
            self.reported = _reported(name, text)
            code = self._exit_code()
            if code is None:
                code = self._kill()
            self.code = code if self.reported is None else self.reported
            self.ended.set()
            self.changes.announce()
        finally:
            self._reading.release()

    def _exit_code(self) -> Optional[int]:
        """Waits for the exit and returns its code; None if the exit takes too long, or for code 0,
        which Python also returns if it ignores SIGCHLD or other code reaps all children."""
        try:
            return self._process.wait(EXIT_SECONDS) or None
        except subprocess.TimeoutExpired:
            return None

    def _kill(self) -> Optional[int]:
        """Kills the program and returns its exit code; None if the program survives."""
        self._signal(signal.SIGKILL)
        return self._exit_code()

    def _signal(self, number: int) -> None:
        try:
            self._process.send_signal(number)
        except PermissionError:
            pass  # The program runs as another user.

    def _read(self, output: Any, end: Optional[float]) -> bytes:
        if end is not None:
            readable = select.poll()
            readable.register(output, select.POLLIN)
            if not readable.poll(max(end - time.monotonic(), 0.0) * 1000):
                self._kill()
                return b""  # A descendant may keep the output open.
        return bytes(output.read(_LINE_BYTES_MAX))


def _reported(name: str, text: bytes) -> Optional[int]:
    """Returns the exit code that the last line of the output reports."""
    lines = text.splitlines(keepends=True)
    line = _object(lines[-1]) if lines else {}
    code = line.get("exit_code")
    return code if line.get("lock") == name and type(code) is int else None


def _object(line: bytes) -> "dict[str, Any]":
    """Returns the JSON object of a complete line, otherwise an empty object."""
    try:
        value = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {}


class HeldLock:
    """A lock that this process holds. A lost or released lock never becomes valid again.

    The lock is released at the end of a ``with`` block. Without ``on_lost``, it is also released if
    this object is garbage-collected.
    """

    name: str
    token: int
    """The fencing token."""
    slot: Optional[int]
    """The number of the slot, if the lock has slots."""

    def __init__(self, program: _Program, name: str, token: int, slot: Optional[int]) -> None:
        self.name, self.token, self.slot = name, token, slot
        self._program = program
        self._released = False
        self._losses: List[bool] = []
        """For each release: True if the lock was already lost. The first release counts, because
        it ends the program."""
        self._dropped = weakref.finalize(self, _drop, program, name)
        # The input closes when this process exits. A forked process has no lock to release.
        self._dropped.atexit = False

    def is_valid(self) -> bool:
        """Returns True if ``leasehold`` has not reported a loss, and the lock was not released."""
        return not self._released and self._program.is_running()

    def check(self) -> None:
        """Raises :class:`LockLost` unless the lock is held. Call it before each effect."""
        if not self.is_valid():
            raise LockLost(f"lock {self.name} is no longer held", self._program.code)

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the lock is lost or released. Returns False if it is still held after
        ``timeout`` seconds."""
        timeout = limit("timeout", timeout)
        if self._is_of_parent():
            return True
        return self._program.ended.wait(timeout)

    def _wait(self, timeout: Optional[float]) -> Wait[bool]:
        def look(expired: bool) -> Optional[bool]:
            if self._is_of_parent() or self._program.ended.is_set():
                return True
            return False if expired else None

        return Wait(self._program.changes, look, timeout)

    def release(self) -> None:
        """Releases the lock. Raises :class:`LockLost` if the lock was already lost, or if
        `leasehold` does not confirm the release in time. Does nothing in a forked process, which
        does not hold the lock.

        Further calls, even in other threads, wait for the end of the first call and report its
        result. If Ctrl-C interrupts a call, call ``release`` again."""
        if self._is_of_parent():
            return
        self._end()
        self._program.wait()
        self._confirm()

    def _is_of_parent(self) -> bool:
        """True in a forked process, which does not hold the lock."""
        return os.getpid() != self._program.owner

    def _confirm(self) -> None:
        """Raises :class:`LockLost` unless the lock was released."""
        lost = self._losses[0]
        if lost or self._program.reported not in _RELEASED:
            why = "was lost"
            if not lost and self._program.reported is None:
                why = "may still be held until it expires: leasehold did not confirm the release"
            raise LockLost(f"lock {self.name} {why}", self._program.code)

    def _end(self) -> None:
        """Starts the release of the lock without waiting for it."""
        self._losses.append(not self.is_valid())  # Atomic, because threads may compete.
        self._released = True
        self._program.give_up()
        self._dropped.detach()  # Last, so that the finalizer still runs after a Ctrl-C above.

    def __enter__(self) -> "HeldLock":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            self.release()
        except LockLost:
            if error is None:
                raise


def _drop(program: _Program, name: str) -> None:
    """Releases a lock whose :class:`HeldLock` was garbage-collected."""
    program.give_up()
    if os.getpid() == program.owner:
        warnings.warn(f"lock {name} was dropped without a release", ResourceWarning, stacklevel=2)


class _Acquisition(Future["HeldLock"]):
    """The future of :meth:`Lock.start`. After the first call of ``result``, its lock is kept for
    ``on_lost``. Cancelling the wait drops the lock."""

    def __init__(self, keep: bool) -> None:
        super().__init__()
        self._keep = keep

    def result(self, timeout: Optional[float] = None) -> HeldLock:
        held = super().result(timeout)
        if self._keep and not held._program.abandoned:
            held._program.kept = held
        return held


class Lock:
    """A lock to acquire. In a ``with`` statement the lock is held until the end of the block::

        with Lock("nightly-report", wait=30) as held:
            for part in parts:
                held.check()
                report(part, fencing_token=held.token)

    When the block ends, it raises :class:`LockLost` if the lock was lost, unless another exception
    ends the block. Threads, tasks and generators may share this object: each ``with`` statement releases
    the lock that it has acquired, in any order. An :class:`contextlib.ExitStack` needs
    ``stack.enter_context(lock.acquire())``.
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
        """``wait`` is the maximum time in seconds to wait for other holders. None, or more than 31 days,
        means no limit; 0 means no wait, but holders that seem to be dead are watched until they expire
        (usually 24 s). ``arguments`` are further flags of ``leasehold lock``, such as
        ``--mongodb-uri-file=PATH``. ``on_lost`` is called in a thread when the lock is lost. With
        ``on_lost``, a lock is held until its release or loss, even if it is garbage-collected.
        """
        self._name, self._slots, self._on_lost = name, slots, on_lost
        self._command: List[str] = [program, "lock", name, "--report-exit-code", *arguments]
        wait = limit("wait", wait, _WAIT_SECONDS_MAX)
        if wait is not None:
            self._command.append("--no-wait" if wait == 0 else f"--wait={wait:.3f}")
        if shared:
            self._command.append("--shared")
        if slots is not None:
            self._command.append(f"--slots={slots}")
        # The open blocks. The frame of a `with` statement identifies its block: a block begins and
        # ends in one frame, and the blocks of one frame end in reverse order.
        self._open: Dict[HeldLock, Optional[FrameType]] = {}

    def acquire(self) -> HeldLock:
        """Waits for the lock. The caller must keep the result and release it. Without ``on_lost``, the
        lock is released if the result is garbage-collected.

        Raises :class:`LockNotAcquired` if another process holds the lock, and :class:`LockError` if
        ``leasehold`` fails. ``leasehold`` writes its messages to the standard error of this process.
        """
        return self._await(_Program(self._command), self._on_lost is not None)

    def start(self) -> "Future[HeldLock]":
        """Waits for the lock in a thread. A cancelled future leaves the queue. With asyncio, use
        :func:`leasehold.aio.lock`.

        The caller must keep and release the result, like the result of :meth:`acquire`.
        """
        program = _Program(self._command)
        future = _Acquisition(self._on_lost is not None)

        def run() -> None:
            try:
                held = self._await(program)
            except BaseException as error:
                if future.set_running_or_notify_cancel():
                    future.set_exception(error)
            else:
                if future.set_running_or_notify_cancel():
                    future.set_result(held)
                else:
                    held.release()

        def cancelled(done: "Future[HeldLock]") -> None:
            if done.cancelled():
                program.shut_down()

        try:
            threading.Thread(target=run, name="leasehold-acquire", daemon=True).start()
        except BaseException:
            program.close(self._name)
            raise
        future.add_done_callback(cancelled)
        return future

    def _await(self, program: _Program, keep: bool = False) -> HeldLock:
        line = b""
        try:
            line = program.first_line()
            holder = self._holder(line)
            if holder is not None:
                held = HeldLock(program, self._name, *holder)
                if keep:
                    program.kept = held
                program.watch(self._name, self._on_lost)
                return held
        except BaseException:
            program.close(self._name)
            raise
        code = program.close(self._name, line)
        if line and _reported(self._name, line) is None:
            raise LockError(f"lock {self._name}: leasehold printed an unexpected line: {line!r}")
        how = "was ended, and its exit code is unknown" if code is None else f"exited with code {code}"
        # An older `leasehold` reports no error.
        why = _object(line).get("error", f"leasehold {how}")
        kind = LockNotAcquired if code == _NOT_ACQUIRED else LockError
        raise kind(f"lock {self._name}: {why}", code)

    def _holder(self, line: bytes) -> "Optional[Tuple[int, Optional[int]]]":
        """Returns the token and the slot in a complete line of this lock; None for other text."""
        held = _object(line)
        token, slot = held.get("token"), held.get("slot")
        has_slot = type(slot) is int if self._slots is not None else slot is None
        if held.get("lock") == self._name and type(token) is int and token >= 1 and has_slot:
            return token, slot
        return None

    def __enter__(self) -> HeldLock:
        program = _Program(self._command)
        held = None
        try:
            held = self._await(program, self._on_lost is not None)
            self._open[held] = sys._getframe().f_back
            return held
        except BaseException:  # Python does not enter the block, so it does not call `__exit__`.
            program.give_up()
            if held is not None:
                self._forget(held)
            raise

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            held = self._left(sys._getframe().f_back)
        except BaseException:  # Ctrl-C may have interrupted the search.
            self._forget(self._left(sys._getframe().f_back))
            raise
        try:
            held.__exit__(kind, error, trace)
        finally:
            self._forget(held)  # Must run even if Ctrl-C has interrupted the release.

    def _forget(self, held: HeldLock) -> None:
        held._end()
        self._open.pop(held, None)

    def _left(self, frame: Optional[FrameType]) -> HeldLock:
        """Returns the lock of the block that ends in this frame."""
        blocks = self._open.copy()  # Atomic, because other threads enter and leave blocks.
        for held, entered in reversed(blocks.items()):
            if frame is not None and entered is frame:
                return held
        if len(blocks) == 1:
            return next(iter(blocks))
        raise RuntimeError(
            f"lock {self._name}: {len(blocks)} blocks are open, and the one that ended was not entered "
            "by the same with statement; nothing was released. To fix: with lock.acquire() as held"
        )
