"""The package for asyncio::

    async with aio.follow("127.0.0.1:9402") as follower:
        async with follower.lead() as term:
            ...  # cancelled when the leadership ends, which raises NotLeader

    async with aio.lock("nightly-report", wait=30) as held:
        ...  # cancelled when the lock is lost, which raises LockLost

Needs Python 3.11. A cancelled wait leaves nothing behind: no thread, no place in a queue, no lock.
"""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import Future
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, AsyncContextManager, AsyncIterator, Awaitable, Callable, Generator, Generic
from typing import Optional, Sequence, Type, TypeVar, Union

from . import events, lock as locks
from .events import NotLeader
from .lock import LockLost
from .waits import Wait

if sys.version_info < (3, 11):
    raise ImportError("leasehold.aio needs Python 3.11 or later")

__all__ = ["Follower", "HeldLock", "Term", "follow", "lock"]

CANCEL_SECONDS = 1.0
"""Interval between cancellations of a block that has lost its leadership or lock. Code in the block may
swallow a cancellation, as `asyncio.wait_for` of Python 3.11 does if its result arrives at that moment.
A shorter interval would interrupt the block's cleanup."""

T = TypeVar("T")
Kept = TypeVar("Kept", bound="Union[Term, HeldLock]")


class Term:
    """One leadership of this candidate. An ended term never becomes valid again."""

    token: int
    """The fencing token."""

    def __init__(self, term: events.Term) -> None:
        self._term, self.token = term, term.token

    def is_valid(self) -> bool:
        """Returns True if this leadership has not ended at this instant."""
        return self._term.is_valid()

    def check(self) -> None:
        """Raises :class:`NotLeader` if this leadership has ended. Call it before each effect."""
        self._term.check()

    async def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until this leadership has ended. Returns False if it still lasts after ``timeout``
        seconds."""
        return await _result(self._term._wait(timeout))

    async def _leave(self) -> None:
        self.check()


class Follower:
    """Reads the events of a daemon in a thread, until it is closed."""

    def __init__(self, address: str) -> None:
        self._follower = events.Follower(address)

    @property
    def error(self) -> Optional[Exception]:
        """Reason why the last stream ended or could not be opened, for log messages; None after an
        event."""
        return self._follower.error

    def token(self) -> Optional[int]:
        """Returns the fencing token if the candidate leads at this instant, otherwise None."""
        return self._follower.token()

    def is_leader(self) -> bool:
        """Returns True if the candidate leads at this instant."""
        return self._follower.is_leader()

    def lead(self, timeout: Optional[float] = None) -> "Entry[Term]":
        """Waits until the candidate leads: ``async with follower.lead() as term``, or
        ``term = await follower.lead()``, which does not cancel anything when the term ends.

        Raises :class:`TimeoutError` after ``timeout`` seconds, and :class:`ValueError` if the
        follower is closed.
        """

        async def lead() -> Term:
            return Term(await _result(self._follower._lead(timeout)))

        return Entry(lead)

    def close(self) -> None:
        """Ends the stream and the current term, without waiting."""
        self._follower._end()

    async def __aenter__(self) -> "Follower":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def follow(address: str) -> Follower:
    """Follows the events of the daemon whose ``http.listen`` is ``address``, such as
    ``"127.0.0.1:9402"``. The daemon must run on this machine.

    Use the result in an ``async with`` statement, or close it.
    """
    return Follower(address)


class HeldLock:
    """A lock that this process holds. A lost or released lock never becomes valid again. It is
    released if this object is garbage-collected."""

    name: str
    token: int
    """The fencing token."""
    slot: Optional[int]
    """The number of the slot, if the lock has slots."""

    def __init__(self, held: locks.HeldLock) -> None:
        self._held = held
        self.name, self.token, self.slot = held.name, held.token, held.slot

    def is_valid(self) -> bool:
        """Returns True if ``leasehold`` has not reported a loss, and the lock was not released."""
        return self._held.is_valid()

    def check(self) -> None:
        """Raises :class:`LockLost` unless the lock is held. Call it before each effect."""
        self._held.check()

    async def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the lock is lost or released. Returns False if it is still held after
        ``timeout`` seconds."""
        return await _result(self._held._wait(timeout))

    async def release(self) -> None:
        """Releases the lock, even if the wait for the confirmation is cancelled. Raises
        :class:`LockLost` if the lock was already lost, or if `leasehold` does not confirm the release
        in time. Does nothing in a forked process. Further calls report the result of the first."""
        if self._held._is_of_parent():
            return
        self._held._end()
        if not await self.wait(locks.RELEASE_SECONDS):
            await asyncio.to_thread(self._held._program.wait, 0)  # Kills the program.
        self._held._confirm()

    async def _leave(self) -> None:
        await self.release()


def lock(
    name: str,
    *,
    wait: Optional[float] = None,
    shared: bool = False,
    slots: Optional[int] = None,
    arguments: Sequence[str] = (),
    program: str = "leasehold",
) -> "Entry[HeldLock]":
    """Waits for a lock: ``async with lock(name) as held``, or ``held = await lock(name)``, which the
    caller must release.

    ``wait`` is the maximum time in seconds to wait for other holders. None, or more than 31 days,
    means no limit; 0 means no wait, but holders that seem to be dead are watched until they expire
    (usually 24 s). ``arguments`` are further flags of ``leasehold lock``, such as
    ``--mongodb-uri-file=PATH``.

    Raises :class:`LockNotAcquired` if another process holds the lock, and :class:`LockError` if
    ``leasehold`` fails.
    """
    wanted = locks.Lock(
        name, wait=wait, shared=shared, slots=slots, arguments=arguments, program=program
    )

    async def acquire() -> HeldLock:
        started = wanted.start()
        try:
            return HeldLock(await asyncio.wrap_future(started))
        except BaseException:
            # The lock may have been acquired just before the cancellation.
            started.cancel()
            started.add_done_callback(_give_up)
            raise

    return Entry(acquire)


class Entry(Generic[Kept]):
    """The result of :func:`lock` and of :meth:`Follower.lead`: await it, or enter it once as an
    ``async with`` block.

    The block is cancelled when the lock is lost or the leadership ends, and again each second until it
    exits. It then raises :class:`LockLost` or :class:`NotLeader`. It also raises this error if its work has already ended,
    but not in place of another exception.
    """

    def __init__(self, acquire: Callable[[], Awaitable[Kept]]) -> None:
        self._acquire = acquire
        self._block: Optional[AsyncContextManager[Kept]] = None

    def __await__(self) -> Generator[Any, None, Kept]:
        return self._acquire().__await__()

    async def __aenter__(self) -> Kept:
        if self._block is not None:
            raise RuntimeError("this block was already entered; call lock() or lead() for each block")
        self._block = _block(self._acquire)
        return await self._block.__aenter__()

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> Optional[bool]:
        assert self._block is not None
        return await self._block.__aexit__(kind, error, trace)


@asynccontextmanager
async def _block(acquire: Callable[[], Awaitable[Kept]]) -> AsyncIterator[Kept]:
    kept = None
    try:
        async with asyncio.timeout(None) as scope:
            kept = await acquire()
            block = asyncio.current_task()
            assert block is not None
            watch = asyncio.create_task(_expire(kept, scope, block))
            try:
                yield kept
            finally:
                watch.cancel()
    except BaseException as error:
        # After GeneratorExit, this code must not await. The lock is released when the last reference
        # to it is dropped.
        if kept is not None and not isinstance(error, GeneratorExit):
            try:
                await kept._leave()
            except (LockLost, NotLeader):
                if scope.expired() and isinstance(error, TimeoutError):
                    raise
        raise
    await kept._leave()


async def _expire(kept: Kept, scope: asyncio.Timeout, block: "asyncio.Task[Any]") -> None:
    """Cancels the block when the leadership or the lock ends, until this task is cancelled."""
    await kept.wait()
    scope.reschedule(0)  # The past: cancels the block.
    while True:
        await asyncio.sleep(CANCEL_SECONDS)
        block.cancel()
        block.uncancel()  # The scope already counts as one cancellation, and undoes one.


async def _result(wait: Wait[T]) -> T:
    """Waits without blocking the event loop."""
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def wake() -> None:
        try:
            loop.call_soon_threadsafe(changed.set)
        except RuntimeError:
            pass  # The loop is closed.

    wait.changes.listeners[changed] = wake
    try:
        while True:
            changed.clear()
            found = wait.look()
            if found is not None:
                return found
            try:
                async with asyncio.timeout(wait.pause()):
                    await changed.wait()
            except TimeoutError:
                pass
    finally:
        del wait.changes.listeners[changed]


def _give_up(started: "Future[locks.HeldLock]") -> None:
    """Releases the lock of a cancelled wait, without waiting."""
    if not started.cancelled() and started.exception() is None:
        started.result()._end()
