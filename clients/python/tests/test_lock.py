"""A lock counts as held only while ``leasehold`` holds it."""

import json
import os
import signal
import stat
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

from leasehold import Lock, LockError, LockLost, LockNotAcquired, lock
from testbed import PROGRAM, STORE, eventually, leasehold


def of(name, **options):
    return Lock(name, program=PROGRAM, arguments=[STORE], **options)


def listed(name):
    """The holders and waiters of a lock."""
    output = leasehold("locks", STORE, "--output=json").stdout
    found = [one for one in json.loads(output) if one["lock"] == name]
    return (found[0]["holders"], found[0]["queue"]) if found else ([], [])


def children():
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def running():
    """The child processes that have not exited."""

    def state(child):
        try:
            return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return "X"  # Another thread has reaped the process.

    return [child for child in children() if state(child) not in "XZ"]


class Locks(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(children(), [], "a process is left")

    def broken(self, name):
        broken = leasehold("locks", "break", name, "--force", "--yes", STORE)
        self.assertEqual(broken.returncode, 0, broken)

    def test_it_is_held_in_the_block_and_released_at_its_end(self):
        with of("python-block") as held:
            self.assertEqual((held.name, held.token, held.slot), ("python-block", 1, None))
            held.check()
            self.assertFalse(held.wait(0))
            with self.assertRaises(LockNotAcquired) as refused:
                of("python-block", wait=0).acquire()
            self.assertEqual(refused.exception.code, 75)
            self.assertIn("not acquired: held by ", str(refused.exception))
            with self.assertRaises(LockNotAcquired):
                of("python-block", wait=1).acquire()
            held.check()
        self.assertRaises(LockLost, held.check)
        self.assertTrue(held.wait(0))
        with of("python-block", wait=0) as again:
            self.assertEqual(again.token, 2)

    def test_an_exception_releases_it(self):
        with self.assertRaises(ZeroDivisionError), of("python-exception"):
            1 / 0
        with of("python-exception", wait=0):
            pass

    def test_a_waiter_gets_it(self):
        held = of("python-waiter").acquire()
        got = []

        def wait():
            with of("python-waiter", wait=60) as second:
                got.append(second.token)

        waiter = threading.Thread(target=wait)
        waiter.start()
        eventually(lambda: listed("python-waiter")[1])
        held.release()
        held.release()
        waiter.join()
        self.assertEqual(got, [2])

    def test_slots_have_numbers(self):
        with of("python-slots", slots=2) as one, of("python-slots", slots=2) as other:
            self.assertEqual(sorted([one.slot, other.slot]), [0, 1])
            self.assertRaises(LockNotAcquired, of("python-slots", slots=2, wait=0).acquire)

    def test_a_negative_number_of_slots_is_refused(self):
        with self.assertRaises(LockError) as raised:
            of("python-negative-slots", slots=-1).acquire()
        self.assertEqual(raised.exception.code, 64)

    def test_a_long_wait_is_accepted(self):
        # The program accepts at most 31 days.
        days = 24 * 3600
        for wait in (31 * days, 31 * days + 1, 1e9, 1e300, 10**400, float("inf")):
            with self.subTest(wait), of("python-long-wait", wait=wait) as held:
                waited = []
                thread = threading.Thread(target=lambda: waited.append(held.wait(wait)))
                thread.start()
                held.release()
                thread.join()
                self.assertEqual(waited, [True])

    def test_a_wait_that_is_negative_or_not_a_number_is_refused(self):
        with of("python-no-wait") as held:
            for wait in (-1, -0.001, float("-inf"), float("nan")):
                with self.subTest(wait):
                    with self.assertRaisesRegex(ValueError, f"wait .* not {wait}"):
                        of("python-no-wait", wait=wait)
                    with self.assertRaisesRegex(ValueError, f"timeout .* not {wait}"):
                        held.wait(wait)

    def test_readers_share_it(self):
        with of("python-shared", shared=True), of("python-shared", shared=True, wait=0):
            self.assertRaises(LockNotAcquired, of("python-shared", wait=0).acquire)

    def test_a_broken_lock_is_lost(self):
        lost = threading.Event()
        with self.assertRaises(LockLost) as raised:
            with of("python-broken", on_lost=lost.set) as held:
                self.broken("python-broken")
                self.assertTrue(held.wait(60))
                self.assertTrue(lost.wait(60))
                self.assertFalse(held.is_valid())
                self.assertRaises(LockLost, held.check)
        self.assertEqual(raised.exception.code, 76)

    def test_a_killed_program_has_lost_its_lock(self):
        with self.assertRaises(LockLost):
            with of("python-killed-lock") as held:
                os.kill(int(children()[0]), signal.SIGKILL)
                self.assertTrue(held.wait(60))
                self.assertRaises(LockLost, held.check)

    def test_the_exception_of_the_work_counts_more_than_the_loss(self):
        with self.assertRaises(ZeroDivisionError):
            with of("python-both") as held:
                self.broken("python-both")
                held.wait(60)
                1 / 0

    def test_a_loss_that_no_check_noticed_is_raised_by_the_end_of_the_block(self):
        with self.assertRaises(LockLost):
            with of("python-unnoticed"):
                self.broken("python-unnoticed")
                eventually(lambda: not running())

    def test_a_stop_signal_does_not_take_it_from_the_block(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            with self.subTest(number), of("python-signalled") as held:
                os.kill(int(children()[0]), number)
                self.assertFalse(held.wait(0.5))
                self.assertRaises(LockNotAcquired, of("python-signalled", wait=0).acquire)

    def test_a_frozen_program_is_killed_at_the_release(self):
        held = of("python-frozen-lock").acquire()
        os.kill(int(children()[0]), signal.SIGSTOP)
        with mock.patch.object(lock, "RELEASE_SECONDS", 0.2):
            self.assertRaises(LockLost, held.release)

    def test_an_interrupted_wait_leaves_the_queue(self):
        class Interrupted(Exception):
            pass

        def interrupt(*_):
            raise Interrupted

        held = of("python-interrupted").acquire()
        before = signal.signal(signal.SIGUSR1, interrupt)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)

        def interrupt_when_it_waits():
            eventually(lambda: listed("python-interrupted")[1])
            os.kill(os.getpid(), signal.SIGUSR1)

        other = threading.Thread(target=interrupt_when_it_waits)
        other.start()
        self.assertRaises(Interrupted, of("python-interrupted", wait=60).acquire)
        other.join()
        self.assertEqual(listed("python-interrupted")[1], [])
        held.release()

    def test_a_forked_process_does_not_hold_it(self):
        with of("python-forked") as held:
            child = os.fork()
            if child == 0:
                os._exit(40 + held.is_valid())
            _, status = os.waitpid(child, 0)
            self.assertEqual(os.waitstatus_to_exitcode(status), 40)
            held.check()


class Failures(unittest.TestCase):
    def printing(self, script):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        program = Path(scratch.name, "leasehold")
        program.write_text("#!/bin/sh\n" + script)
        program.chmod(stat.S_IRWXU)
        return str(program)

    def test_an_unexpected_line_is_not_a_lock(self):
        for line in (
            "nonsense",
            "[]",
            '{"lock":"other","token":1}',
            '{"lock":"it"}',
            '{"lock":"it","token":0}',
            '{"lock":"it","token":true}',
            '{"lock":"it","token":"1"}',
            '{"lock":"it","token":1,"slot":0}',
        ):
            program = self.printing(f"printf '%s\\n' '{line}'; cat >/dev/null\n")
            with self.subTest(line), self.assertRaises(LockError) as raised:
                Lock("it", program=program).acquire()
            self.assertIn("unexpected", str(raised.exception))
        self.assertEqual(children(), [])

    def test_an_incomplete_line_is_not_a_lock(self):
        held = '{"lock":"it","token":1}'
        for length in range(1, len(held) + 1):
            program = self.printing(f"printf '%s' '{held[:length]}'\n")
            self.assertRaises(LockError, Lock("it", program=program).acquire)
        program = self.printing("printf '%s' '" + "x" * 5000 + "'; exec sleep 1000\n")
        self.assertRaises(LockError, Lock("it", program=program).acquire)
        # Now the line is complete.
        released = '{"lock":"it","exit_code":0}'
        program = self.printing(f"echo '{held}'; cat >/dev/null; echo '{released}'\n")
        with Lock("it", program=program) as lock_:
            self.assertEqual(lock_.token, 1)

    def test_a_slot_that_is_missing_is_not_a_lock(self):
        program = self.printing("echo '{\"lock\":\"it\",\"token\":1}'; cat >/dev/null\n")
        self.assertRaises(LockError, Lock("it", slots=2, program=program).acquire)

    def test_a_program_that_fails_is_reported_with_its_code(self):
        with self.assertRaises(LockError) as raised:
            Lock("it", program=PROGRAM, arguments=["--no-such-flag"]).acquire()
        self.assertEqual(raised.exception.code, 64)
        self.assertNotIsInstance(raised.exception, LockNotAcquired)
        self.assertRaises(OSError, Lock("it", program="/nonexistent").acquire)


if __name__ == "__main__":
    unittest.main()
