"""An event is trusted until its deadline, but only while the stream is open."""

import http.client
import json
import os
import signal
import socket
import threading
import time
import unittest
from unittest import mock

from leasehold import NotLeader, events, follow
from testbed import AUTHORITY_MAX_NS, STORE, Daemon, boottime_ns, eventually, good, inputs, leasehold

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


class Server:
    """A server that sends streams which a real daemon never sends."""

    def __init__(self, test):
        self._listener = socket.create_server(("127.0.0.1", 0))
        test.addCleanup(self._listener.close)
        self._listener.settimeout(30)
        self.address = "127.0.0.1:{}".format(self._listener.getsockname()[1])
        self._test = test

    def accept(self, answer=STREAM):
        stream, _ = self._listener.accept()
        self._test.addCleanup(stream.close)
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            received = stream.recv(4096)
            assert received, f"the request has no end: {request}"
            request += received
        stream.sendall(answer)
        return stream


def event(**fields):
    return b"data: " + json.dumps({**json.loads(good()), **fields}).encode() + b"\n\n"


class Streams(unittest.TestCase):
    def follow(self, server, answer=STREAM):
        follower = follow(server.address)
        self.addCleanup(follower.close)
        return follower, server.accept(answer)

    def led(self, server):
        """Returns a follower that leads with token 7, and its stream."""
        follower, stream = self.follow(server)
        stream.sendall(event())
        term = follower.lead(30)
        self.assertEqual((term.token, follower.token()), (7, 7))
        return follower, stream, term

    def assert_ended(self, term):
        self.assertTrue(term.wait(30))
        self.assertFalse(term.is_valid())
        self.assertRaises(NotLeader, term.check)

    def test_hostile_lines_are_not_leader(self):
        server = Server(self)
        for name, line in inputs("lines").items():
            with self.subTest(name, line=line[:150]):
                follower, stream, term = self.led(server)
                stream.sendall(line + b"\n\n")
                if line.startswith(b"data:"):
                    self.assert_ended(term)
                    self.assertIsNone(follower.token())
                else:
                    # The follower ignores this event and applies the next event.
                    stream.sendall(event(token=8))
                    eventually(lambda: follower.token() == 8)
                follower.close()

    def test_a_stream_that_hangs_ends_the_leadership_at_its_deadline(self):
        follower, stream, term = self.led(Server(self))
        until = boottime_ns() + 700_000_000
        stream.sendall(event(valid_until_boottime_ns=until))
        self.assertTrue(term.wait(30))
        self.assertGreaterEqual(boottime_ns(), until)
        self.assert_ended(term)
        self.assertFalse(follower.is_leader())
        # A later event of the same token does not make the term valid again.
        stream.sendall(event())
        self.assertIsNot(follower.lead(30), term)
        self.assertFalse(term.is_valid())

    def test_an_extension_keeps_the_leadership(self):
        follower, stream = self.follow(Server(self))
        until = boottime_ns() + 5_000_000_000
        stream.sendall(event(valid_until_boottime_ns=until))
        term = follower.lead(30)
        stream.sendall(event())
        eventually(lambda: boottime_ns() > until)
        term.check()
        self.assertIs(follower.lead(0), term)
        self.assertIs(follower.lead(float("inf")), term)
        for timeout in (-1, float("nan")):
            self.assertRaisesRegex(ValueError, f"timeout .* not {timeout}", follower.lead, timeout)
            self.assertRaisesRegex(ValueError, f"timeout .* not {timeout}", term.wait, timeout)
        self.assertFalse(term.wait(0))

    def test_the_end_of_a_stream_ends_the_leadership_until_the_next_event(self):
        for end in (b"", b"data: {", event(token=9)[:-4], b"x" * 70_000):
            with self.subTest(end=end[:20]):
                server = Server(self)
                follower, stream, term = self.led(server)
                stream.sendall(end)
                if len(end) < 65536:
                    stream.shutdown(socket.SHUT_RDWR)
                self.assert_ended(term)
                self.assertRaisesRegex(TimeoutError, "no events from 127", follower.lead, 0)
                server.accept().sendall(event())
                self.assertEqual(follower.lead(30).token, 7)
                self.assertFalse(term.is_valid())

    def test_a_silent_stream_is_opened_again(self):
        with mock.patch.object(events, "SILENCE_SECONDS", 3.0):
            server = Server(self)
            follower, _, term = self.led(server)
            self.assert_ended(term)
            server.accept().sendall(event(token=8))
            self.assertEqual(follower.lead(30).token, 8)

    def test_other_answers_are_not_leader(self):
        server = Server(self)
        moved = f"HTTP/1.1 302 Found\r\nLocation: http://{server.address}/other\r\n\r\n".encode()
        for answer in (moved, b"HTTP/1.1 503 Busy\r\n\r\n", b"HTTP/1.1 404 None\r\n\r\n", b""):
            with self.subTest(answer=answer):
                # The stream stays open, so a reader that accepted the line would lead.
                follower, _ = self.follow(server, answer + event(token=9))
                eventually(lambda: follower.error)
                server.accept(STREAM + event())
                self.assertEqual(follower.lead(30).token, 7)
                eventually(lambda: follower.error is None)
                follower.close()

    def test_an_invalid_address_is_an_error(self):
        self.assertRaises(http.client.InvalidURL, follow, "127.0.0.1:http")

    def test_proxies_of_the_environment_are_not_used(self):
        with mock.patch.dict(os.environ, {"http_proxy": "http://127.0.0.1:9"}):
            self.led(Server(self))

    def test_a_closed_follower_is_not_leader(self):
        follower, _, term = self.led(Server(self))
        waiting = threading.Thread(target=term.wait)
        waiting.start()
        with follower:
            term.check()
        self.assert_ended(term)
        waiting.join()
        self.assertIsNone(follower.token())
        self.assertRaises(ValueError, follower.lead, 30)

    def test_a_follower_that_connects_is_closed_at_once(self):
        # A full backlog leaves further connections unanswered.
        listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.addCleanup(listener.close)
        for _ in range(4):
            filler = socket.socket()
            self.addCleanup(filler.close)
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        with mock.patch.multiple(events, CONNECT_SECONDS=6.0, CLOSE_SECONDS=0.2):
            follower = follow("127.0.0.1:{}".format(listener.getsockname()[1]))
            self.addCleanup(follower._thread.join)
            self.assertRaises(TimeoutError, follower.lead, 0.3)
            self.assertIsNone(follower.error, "it does not connect")
            start = time.monotonic()
            follower.close()
            self.assertLess(time.monotonic() - start, 4)
        self.assertFalse(follower.is_leader())

    def test_a_forked_process_is_not_leader(self):
        follower, _, term = self.led(Server(self))
        child = os.fork()
        if child == 0:
            os._exit(40 + term.is_valid() + follower.is_leader())
        _, status = os.waitpid(child, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 40)
        term.check()

    def test_the_clean_up_of_a_forked_process_leaves_the_leadership(self):
        follower, stream, term = self.led(Server(self))
        child = os.fork()
        if child == 0:
            with follower:
                code = 40 + term.wait(30)
            os._exit(code)
        _, status = os.waitpid(child, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 41)
        # After a shutdown of the stream, the event would not be delivered.
        stream.sendall(event(lease="later"))
        eventually(lambda: term._status.document["lease"] == "later")
        term.check()


class Daemons(unittest.TestCase):
    def followed(self, daemon):
        follower = follow(daemon.address)
        self.addCleanup(follower.close)
        return follower

    def test_a_step_down_ends_the_leadership(self):
        lease = "python-step-down"
        a = Daemon(self, lease, "a")
        follower_a = self.followed(a)
        term = follower_a.lead(60)
        self.assertEqual(term.token, a.leads())
        b = Daemon(self, lease, "b")
        follower_b = self.followed(b)
        b.follows("a")
        self.assertFalse(follower_b.is_leader())
        stepped = leasehold("step-down", lease, STORE, "--reason=test")
        self.assertEqual(stepped.returncode, 0, stepped)
        self.assertTrue(term.wait(60))
        self.assertRaises(NotLeader, term.check)
        self.assertGreater(follower_b.lead(60).token, term.token)
        self.assertFalse(follower_a.is_leader())

    def test_the_leadership_of_a_frozen_daemon_ends_at_its_deadline(self):
        daemon = Daemon(self, "python-frozen-events", "a")
        follower = self.followed(daemon)
        term = follower.lead(60)
        # Events extend the leadership beyond its first deadline.
        first = boottime_ns() + 4_600_000_000
        eventually(lambda: boottime_ns() > first)
        term.check()
        daemon.signal(signal.SIGSTOP)
        frozen = boottime_ns()
        until = daemon.status().document["valid_until_boottime_ns"]
        self.assertTrue(term.wait(60))
        now = boottime_ns()
        # The last event may be older than the file, by at most a second and a renewal interval.
        self.assertGreater(now, until - 2_000_000_000)
        self.assertLess(now, until + 5_000_000_000)
        self.assertFalse(follower.is_leader())
        eventually(lambda: boottime_ns() > frozen + AUTHORITY_MAX_NS)
        daemon.signal(signal.SIGCONT)
        self.assertGreater(follower.lead(60).token, term.token)
        self.assertFalse(term.is_valid())

    def test_the_stream_of_a_daemon_that_was_killed_is_opened_again(self):
        daemon = Daemon(self, "python-killed", "a")
        follower = self.followed(daemon)
        term = follower.lead(60)
        daemon.kill()
        self.assertTrue(term.wait(60))
        # The term ends with the stream, although the file is still valid.
        self.assertTrue(daemon.status().is_leader())
        daemon.start()
        self.assertGreater(follower.lead(60).token, term.token)


if __name__ == "__main__":
    unittest.main()
