"""A status file is trusted until its deadline, and no longer."""

import json
import os
import resource
import signal
import tempfile
import threading
import unittest
from pathlib import Path

from leasehold import Status, read_status
from testbed import AUTHORITY_MAX_NS, Daemon, boottime_ns, eventually, good, inputs


class Files(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.directory = Path(scratch.name)

    def status(self, text):
        (self.directory / "status.json").write_bytes(text)
        return read_status(self.directory)

    def changed(self, **fields):
        return self.status(json.dumps({**json.loads(good()), **fields}).encode())

    def assert_not_leader(self, status):
        self.assertIsNone(status.token())
        self.assertFalse(status.is_leader())
        self.assertEqual(status.valid_for(), 0.0)

    def test_a_valid_file_leads(self):
        status = self.status(good())
        self.assertTrue(status.is_leader())
        self.assertEqual(status.token(), 7)
        self.assertTrue(3000 < status.valid_for() <= 3600)
        self.assertEqual(status.document["lease"], "orders")
        # The path may be a string.
        self.assertTrue(read_status(str(self.directory)).is_leader())

    def test_a_deadline_is_compared_at_each_call(self):
        until = boottime_ns() + 200_000_000
        status = self.changed(valid_until_boottime_ns=until)
        self.assertEqual(status.token(), 7)
        eventually(lambda: not status.is_leader())
        self.assertGreaterEqual(boottime_ns(), until)
        self.assert_not_leader(status)

    def test_a_passed_deadline_is_not_leader(self):
        self.assert_not_leader(self.changed(valid_until_boottime_ns=boottime_ns()))

    def test_another_boot_is_not_leader(self):
        self.assert_not_leader(self.changed(boot_id="00000000-0000-0000-0000-000000000000"))
        # A daemon that could not read the boot id wrote null. The reader then checks only the deadline.
        self.assertTrue(self.changed(boot_id=None).is_leader())

    def test_a_boot_or_clock_that_cannot_be_read_now_is_not_leader(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        text = good()
        self.assertTrue(Status(text).is_leader())
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        status = Status(text)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        self.assert_not_leader(status)

    def test_another_time_namespace_is_not_leader(self):
        self.assert_not_leader(self.changed(time_namespace=1))
        self.assert_not_leader(self.changed(time_namespace="x"))

    def test_no_file_is_not_leader(self):
        self.assert_not_leader(read_status(self.directory / "absent"))
        self.assertEqual(read_status(self.directory / "absent").document, {})

    def test_a_directory_or_a_long_file_is_not_leader(self):
        self.assert_not_leader(self.status(good() + b" " * 65536))
        (self.directory / "status.json").unlink()
        (self.directory / "status.json").mkdir()
        self.assert_not_leader(read_status(self.directory))

    def test_a_fifo_is_not_leader(self):
        os.mkfifo(self.directory / "status.json")
        read = []
        reader = threading.Thread(target=lambda: read.append(read_status(self.directory)))
        reader.daemon = True
        reader.start()
        reader.join(30)
        self.assertTrue(read, "it blocks")
        self.assert_not_leader(read[0])

    def test_a_deadline_beyond_any_clock_is_not_leader(self):
        for deadline in (2**63, 10**20, 10**400):
            self.assert_not_leader(self.changed(valid_until_boottime_ns=deadline))
        self.assertTrue(self.changed(valid_until_boottime_ns=2**63 - 1).valid_for() > 0)

    def test_a_partial_file_is_not_leader(self):
        text = good()
        for length in range(len(text)):
            self.assert_not_leader(self.status(text[:length]))

    def test_hostile_files_are_not_leader(self):
        for name, text in inputs("files").items():
            with self.subTest(name, text=text[:150]):
                self.assert_not_leader(self.status(text))


class Daemons(unittest.TestCase):
    def test_a_frozen_daemon_is_leader_until_its_deadline(self):
        daemon = Daemon(self, "python-frozen-file", "a")
        token = daemon.leads()
        daemon.signal(signal.SIGSTOP)
        stopped = boottime_ns()
        frozen = daemon.status()
        until = frozen.document["valid_until_boottime_ns"]
        self.assertEqual(frozen.token(), token)
        eventually(lambda: not daemon.status().is_leader())
        self.assertGreaterEqual(boottime_ns(), until)
        self.assertFalse(frozen.is_leader())
        # The file still contains leader: true.
        self.assertIs(daemon.status().document["leader"], True)
        eventually(lambda: boottime_ns() > stopped + AUTHORITY_MAX_NS)
        daemon.signal(signal.SIGCONT)
        eventually(lambda: (daemon.status().token() or 0) > token)

    def test_a_follower_is_not_leader(self):
        leader = Daemon(self, "python-follower", "a")
        leader.leads()
        follower = Daemon(self, "python-follower", "b")
        follower.follows("a")
        self.assertIsNone(follower.status().token())
        self.assertIsNotNone(leader.status().token())


if __name__ == "__main__":
    unittest.main()
