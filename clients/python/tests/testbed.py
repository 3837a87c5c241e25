"""Daemons and inputs for the tests. ``cargo test --test clients`` sets the environment."""

import os
import subprocess
import tempfile
import time
from pathlib import Path

from leasehold import read_status

PROGRAM = os.environ["CLIENT_TEST_PROGRAM"]
STORE = "--mongodb-uri-file=" + os.environ["CLIENT_TEST_URI_FILE"]
TIMINGS = os.environ["CLIENT_TEST_TIMINGS"].split()
INPUTS = Path(os.environ["CLIENT_TEST_INPUTS"])
PORTS = os.environ["CLIENT_TEST_PORTS"].split()
"""Ports that stay reserved, because a daemon that was killed starts again on its port."""
LONG = 60

# Longer than the renew_deadline of TIMINGS, after which a frozen daemon has no authority. The file
# may be one renewal behind the daemon.
AUTHORITY_MAX_NS = 5_000_000_000


def boottime_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def eventually(condition):
    """Polls until the condition returns a true value, and returns that value."""
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError("the condition does not hold")


def inputs(kind):
    """The bytes of all inputs of one kind, by name."""
    found = {path.name: path.read_bytes() for path in sorted((INPUTS / kind).iterdir())}
    assert len(found) > 20, found
    return found


def good():
    """The JSON of a leader with token 7 for the next hour."""
    return (INPUTS / "good").read_bytes().strip()


def leasehold(*arguments):
    """Runs a command until it exits."""
    return subprocess.run(
        [PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


class Daemon:
    """A daemon that exits with the test or with this process."""

    def __init__(self, test, lease, identity):
        self.lease, self.identity = lease, identity
        self._scratch = tempfile.TemporaryDirectory()
        test.addCleanup(self._scratch.cleanup)
        self.directory = Path(self._scratch.name, "status")
        self.address = f"127.0.0.1:{PORTS.pop()}"
        self.process = None
        test.addCleanup(self.kill)
        self.start()

    def start(self):
        flags = [
            f"--lease={self.lease}", f"--identity={self.identity}", STORE, *TIMINGS,
            f"--status-directory={self.directory}", f"--http-listen={self.address}",
            "--lease-handoff-delay=0s",
        ]  # fmt: skip
        ends_with_us = ["setpriv", "--pdeathsig", "KILL"]
        self.process = subprocess.Popen(
            [*ends_with_us, PROGRAM, "run", *flags], stdin=subprocess.DEVNULL
        )

    def kill(self):
        self.process.kill()
        self.process.wait()

    def signal(self, number):
        self.process.send_signal(number)

    def status(self):
        return read_status(self.directory)

    def leads(self):
        """Waits until the status file says leader, and returns the token."""
        return eventually(lambda: self.status().token())

    def follows(self, leader):
        def follows():
            document = self.status().document
            holder = document.get("holder") or {}
            return document.get("role") == "follower" and holder.get("identity") == leader

        return eventually(follows)
