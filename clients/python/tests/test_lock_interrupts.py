"""Ctrl-C at each line, other threads at each moment, and a lack of threads leave no lock held."""

import gc
import itertools
import linecache
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings
from pathlib import Path
from unittest import mock

from leasehold import Lock, LockLost, lock
from testbed import LONG, eventually
from test_lock import children, running

HELD = '{"lock":"it","token":1}'
HOLDS = """#!/bin/sh
echo '{"lock":"it","token":1}'
cat > /dev/null
echo '{"lock":"it","exit_code":0}'
"""


def reap():
    """Waits for processes whose parent was interrupted before its wait."""
    while children():
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            pass  # A thread has reaped the process.


def ended(test, release, expected, message):
    """Asserts that a release raises an error within its limit."""
    raised = []

    def run():
        try:
            release()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LONG)
    test.assertFalse(thread.is_alive(), "the release does not end")
    test.assertEqual([type(error) for error in raised], [expected])
    test.assertIn(message, str(raised[0]))


watched, waited = lock._Program.watch, lock._Program.wait


class Interrupts(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.program = os.path.join(directory.name, "leasehold")
        self.script(HOLDS)
        ignored = warnings.catch_warnings()
        ignored.__enter__()
        self.addCleanup(ignored.__exit__, None, None, None)
        warnings.simplefilter("ignore", ResourceWarning)

    def script(self, text):
        Path(self.program).write_text(text)
        os.chmod(self.program, 0o700)

    def interrupted(self, use, number):
        """Calls a function, and raises KeyboardInterrupt at the package line with this number.
        Returns the line."""
        at, lines = None, itertools.count(1)

        def trace(frame, event, _):
            nonlocal at
            if frame.f_code.co_filename != lock.__file__:
                return None
            # The interpreter does not check for signals at a `try`, or before a `with` ends.
            source = linecache.getline(lock.__file__, frame.f_lineno).split()
            if event == "line" and source[0] not in ("try:", "with") and next(lines) == number:
                at = (frame.f_code.co_name, frame.f_lineno)
                raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            use()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        return at

    def no_line_leaves_the_lock(self, use, **options):
        for number in itertools.count(1):
            at = self.interrupted(lambda: use(Lock("it", program=self.program, **options)), number)
            gc.collect()
            try:
                eventually(lambda: not running())
            except AssertionError:
                for child in children():
                    os.kill(int(child), signal.SIGKILL)
                self.fail(f"the lock is left after Ctrl-C at {at}")
            finally:
                reap()
            if at is None:
                self.assertGreater(number, 50)
                return

    def test_ctrl_c_at_any_line_of_a_block_does_not_leave_the_lock(self):
        def use(one):
            with one:
                pass

        self.no_line_leaves_the_lock(use)

    def test_ctrl_c_at_any_line_does_not_leave_the_lock(self):
        def use(one):
            held = one.acquire()
            held.release()

        self.no_line_leaves_the_lock(use)

    def test_ctrl_c_at_any_line_does_not_leave_a_lock_that_on_lost_keeps(self):
        def use(one):
            with one:
                pass

        self.no_line_leaves_the_lock(use, on_lost=lambda: None)

    def test_a_release_that_ctrl_c_interrupted_can_be_repeated(self):
        for number in itertools.count(1):
            held = Lock("it", program=self.program).acquire()
            at = self.interrupted(held.release, number)
            held.release()
            self.assertEqual((at, held.is_valid(), running()), (at, False, []))
            reap()
            if at is None:
                self.assertGreater(number, 10)
                return

    def test_a_loss_that_ctrl_c_hid_is_reported_by_the_next_release(self):
        # After the input has closed, this exit code would confirm a release.
        self.script(f"#!/bin/sh\necho '{HELD}'; echo '{{\"lock\":\"it\",\"exit_code\":0}}'\n")
        for number in itertools.count(1):
            held = Lock("it", program=self.program).acquire()
            self.assertTrue(held.wait(LONG))
            try:
                at = self.interrupted(held.release, number)
            except LockLost:  # The release was not interrupted.
                at = None
            for _ in range(2):
                with self.assertRaises(LockLost, msg=at):
                    held.release()
            if at is None:
                self.assertGreater(number, 10)
                return

    def test_a_release_waits_for_that_of_another_thread(self):
        # The script waits for the file before it releases the lock, like `leasehold` with a slow
        # MongoDB.
        file = Path(self.program + ".go")
        self.script(HOLDS.replace("cat > /dev/null", "cat > /dev/null; until [ -e $0.go ]; do sleep 0.01; done"))
        held = Lock("it", program=self.program).acquire()
        waiting, released = [], []

        def wait(program):
            waiting.append(program)
            waited(program)

        def release():
            held.release()
            released.append(file.exists())

        with mock.patch.object(lock._Program, "wait", wait):
            threads = [threading.Thread(target=release) for _ in range(2)]
            for thread in threads:
                thread.start()
            eventually(lambda: released or len(waiting) == len(threads))
            file.touch()
            for thread in threads:
                thread.join()
        self.assertEqual(released, [True, True])

    def test_ctrl_c_is_not_replaced_by_another_error(self):
        # The reader thread competes with the interrupted thread.
        with mock.patch.object(lock._Program, "watch", autospec=True) as watch:

            def interrupt(program, name, on_lost):
                watched(program, name, on_lost)
                raise KeyboardInterrupt

            watch.side_effect = interrupt
            with self.assertRaises(KeyboardInterrupt):
                Lock("it", program=self.program).acquire()
        self.assertEqual(children(), [])

    def test_without_threads_nothing_is_left(self):
        error = RuntimeError("can't start new thread")
        with mock.patch.object(threading.Thread, "start", side_effect=error):
            with self.assertRaises(RuntimeError):
                Lock("it", program=self.program).acquire()
            self.assertEqual(children(), [], "a process is left")
            with self.assertRaises(RuntimeError):
                Lock("it", program=self.program).start()
            self.assertEqual(children(), [], "a process is left")

    def test_two_threads_may_release_it(self):
        # The second release finds that the lock was released and not lost.
        for _ in range(30):
            held = Lock("it", program=self.program).acquire()
            begin = threading.Barrier(3)
            errors = []

            def release():
                begin.wait()
                try:
                    held.release()
                except LockLost as error:
                    errors.append(error)

            def look():
                begin.wait()
                while held.is_valid():
                    pass

            threads = [threading.Thread(target=one) for one in (release, release, look)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(errors, [])
            eventually(lambda: not children())

    def test_a_descendant_that_keeps_the_output_open_does_not_delay_the_end(self):
        self.script(f"#!/bin/sh\nsleep 1000 & echo $! > {self.program}.pid; echo nonsense; cat\n")
        with mock.patch.object(lock, "RELEASE_SECONDS", 0.2):
            with self.assertRaises(lock.LockError):
                Lock("it", program=self.program).acquire()
        os.kill(int(Path(self.program + ".pid").read_text()), signal.SIGKILL)

    def test_a_descendant_that_keeps_the_output_open_does_not_delay_the_release(self):
        self.script(
            f"#!/bin/sh\nsleep 1000 & echo $! > {self.program}.pid; echo '{HELD}'; wait\n",
        )
        held = Lock("it", program=self.program).acquire()
        descendant = int(Path(self.program + ".pid").read_text())
        self.addCleanup(os.kill, descendant, signal.SIGKILL)
        with mock.patch.object(lock, "RELEASE_SECONDS", 0.2):
            ended(self, held.release, LockLost, "did not confirm")
        self.assertEqual(children(), [])

    def test_a_program_that_survives_sigkill_does_not_delay_the_release(self):
        self.script(f"#!/bin/sh\nexec setpriv --reuid=65534 --clear-groups sh -c 'echo \"$0\"; kill -STOP $$' '{HELD}'\n")
        if os.geteuid() != 0:
            self.skipTest("needs root, to run a program as another user")
        # The process must not be able to signal processes of other users.
        powerless = ["setpriv", "--bounding-set=-kill", "--inh-caps=-kill", sys.executable, "-B", "-c"]
        text = (
            "import time\n"
            "from leasehold import Lock, LockLost, lock\n"
            f"held = Lock('it', program={self.program!r}).acquire()\n"
            "print(held._program._process.pid, flush=True)\n"
            "lock.RELEASE_SECONDS = 0.2\n"
            "try: held.release()\n"
            "except LockLost as error: print(error, error.code, flush=True)\n"
        )
        with subprocess.Popen([*powerless, text], stdout=subprocess.PIPE, text=True) as process:
            self.addCleanup(process.kill)
            survivor = int(process.stdout.readline())
            self.addCleanup(os.kill, survivor, signal.SIGKILL)
            said = []
            reader = threading.Thread(target=lambda: said.append(process.stdout.readline()))
            reader.start()
            reader.join(LONG)
            self.assertIn("did not confirm the release None", said[0] if said else "nothing")
            self.assertEqual(Path(f"/proc/{survivor}/status").read_text().count("Uid:\t65534"), 1)
            os.kill(survivor, signal.SIGKILL)
            self.assertEqual(process.wait(LONG), 0)

    def test_an_exit_code_that_nobody_knows_is_no_release(self):
        # In a parent that ignores SIGCHLD, Python returns 0 for each exit.
        before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGCHLD, before)
        killed = f"#!/bin/sh\necho '{HELD}'; cat > /dev/null; kill -KILL $$\n"
        frozen = f"#!/bin/sh\necho '{HELD}'; exec sleep 1000\n"
        with mock.patch.object(lock, "RELEASE_SECONDS", 0.5):
            for script in (killed, frozen):
                self.script(script)
                held = Lock("it", program=self.program).acquire()
                ended(self, held.release, LockLost, "did not confirm")
        self.script(HOLDS)
        Lock("it", program=self.program).acquire().release()

    def test_the_exit_code_of_another_program_around_it_is_no_release(self):
        self.script(f"#!/bin/sh\necho '{HELD}'; cat > /dev/null; exit 0\n")
        ended(self, Lock("it", program=self.program).acquire().release, LockLost, "did not confirm")


if __name__ == "__main__":
    unittest.main()
