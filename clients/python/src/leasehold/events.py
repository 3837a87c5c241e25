"""Follows ``GET /events`` of a daemon on this machine."""

from __future__ import annotations

import http.client
import os
import socket
import threading
from types import TracebackType
from typing import Optional, Type

from .status import BYTES_MAX, Status
from .waits import Changes, Wait

RECONNECT_SECONDS = 1.0
# The daemon sends a comment after 5 s without an event.
SILENCE_SECONDS = 15.0
CONNECT_SECONDS = 5.0
# A thread that is still connecting after this time exits by itself.
CLOSE_SECONDS = 1.0


class NotLeader(Exception):
    """The leadership has ended."""


class Term:
    """One leadership of this candidate. An ended term never becomes valid again."""

    token: int
    """The fencing token."""

    def __init__(self, token: int, status: Status, changed: Changes) -> None:
        self.token = token
        self._status = status
        self._changed = changed
        self._ended = False
        # A forked process has no thread that reads the stream.
        self._process = os.getpid()

    def is_valid(self) -> bool:
        """Returns True if this leadership has not ended at this instant."""
        if os.getpid() != self._process or self._status.token() != self.token:
            self._ended = True
        return not self._ended

    def check(self) -> None:
        """Raises :class:`NotLeader` if this leadership has ended. Call it before each effect."""
        if not self.is_valid():
            raise NotLeader(f"the leadership with token {self.token} has ended")

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until this leadership has ended. Returns False if it still lasts after ``timeout``
        seconds."""
        return self._wait(timeout).block()

    def _wait(self, timeout: Optional[float]) -> Wait[bool]:
        def look(expired: bool) -> Optional[bool]:
            if not self.is_valid():
                return True
            return False if expired else None

        return Wait(self._changed, look, timeout, lambda: self._status.valid_for())

    def _extend(self, status: Optional[Status]) -> bool:
        """Adopts a later status of the same leadership. Returns False for any other status."""
        if status is None or not self.is_valid() or status.token() != self.token:
            return False
        self._status = status
        return True


class Follower:
    """Reads the events of a daemon in a thread, until it is closed."""

    error: Optional[Exception] = None
    """Reason why the last stream ended or could not be opened, for log messages; None after an
    event."""

    def __init__(self, address: str) -> None:
        http.client.HTTPConnection(address)  # Raises if the address is invalid.
        self._address = address
        self._changed = Changes()
        self._term: Optional[Term] = None
        self._closed = threading.Event()
        self._process = os.getpid()
        self._socket: Optional[socket.socket] = None
        self._thread = threading.Thread(target=self._run, name="leasehold-events", daemon=True)
        self._thread.start()

    def token(self) -> Optional[int]:
        """Returns the fencing token if the candidate leads at this instant, otherwise None."""
        term = self._term
        return term.token if term is not None and term.is_valid() else None

    def is_leader(self) -> bool:
        """Returns True if the candidate leads at this instant."""
        return self.token() is not None

    def lead(self, timeout: Optional[float] = None) -> Term:
        """Waits until the candidate leads.

        Raises :class:`TimeoutError` after ``timeout`` seconds, and :class:`ValueError` if the
        follower is closed.
        """
        return self._lead(timeout).block()

    def _lead(self, timeout: Optional[float]) -> Wait[Term]:
        def look(expired: bool) -> Optional[Term]:
            if os.getpid() != self._process:
                raise ValueError("the follower belongs to another process")
            if self._closed.is_set():
                raise ValueError("the follower is closed")
            term = self._term
            if term is not None and term.is_valid():
                return term
            if expired:
                # Without an event, only the error is known.
                error = self.error
                why = "" if error is None else f": no events from {self._address}: {error}"
                raise TimeoutError(f"the candidate does not lead{why}") from error
            return None

        return Wait(self._changed, look, timeout)

    def close(self) -> None:
        """Ends the stream and the current term. Returns within a second, even
        while a connection is being opened. Does nothing in a forked process, which shares the
        connection with its parent."""
        self._end()
        if os.getpid() == self._process and threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_SECONDS)

    def _end(self) -> None:
        """Ends the stream and the current term without waiting for the thread."""
        if os.getpid() != self._process:
            return
        self._closed.set()
        self._accept(None)
        stream = self._socket
        if stream is not None:
            try:
                stream.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # The term has already ended.

    def __enter__(self) -> "Follower":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._read_events()
            except Exception as error:  # Otherwise the thread would exit and never reconnect.
                self.error = error
            finally:
                # Without the stream, a step-down of the daemon would go unnoticed.
                self._accept(None)
            self._closed.wait(RECONNECT_SECONDS)

    def _read_events(self) -> None:
        # Ignores proxy settings and follows no redirects.
        connection = http.client.HTTPConnection(self._address, timeout=CONNECT_SECONDS)
        try:
            connection.connect()
            connection.sock.settimeout(SILENCE_SECONDS)
            self._socket = connection.sock
            if self._closed.is_set():
                return
            connection.request("GET", "/events", headers={"Accept": "text/event-stream"})
            answer = connection.getresponse()
            if answer.status != 200:
                raise ConnectionError(f"unexpected HTTP status {answer.status}")
            while not self._closed.is_set():
                line = answer.readline(BYTES_MAX + 1)
                if not line.endswith(b"\n"):
                    raise ConnectionError("the stream has ended, or a line is too long")
                if line.startswith(b"data:"):
                    status = Status(line[5:], boot_id_required=True)
                    self._accept(status)
                    if not status.document:
                        raise ConnectionError("invalid line in the event stream")
                    self.error = None
        finally:
            self._socket = None
            connection.close()

    def _accept(self, status: Optional[Status]) -> None:
        with self._changed:
            if self._closed.is_set():
                status = None
            if self._term is None or not self._term._extend(status):
                if self._term is not None:
                    self._term._ended = True
                token = None if status is None else status.token()
                if status is None or token is None:
                    self._term = None
                else:
                    self._term = Term(token, status, self._changed)
        self._changed.announce()


def follow(address: str) -> Follower:
    """Follows the events of the daemon whose ``http.listen`` is ``address``, such as
    ``"127.0.0.1:9402"``. The daemon must run on this machine.

    Use the result in a ``with`` statement, or close it.
    """
    return Follower(address)
