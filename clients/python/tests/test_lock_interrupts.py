"""Ctrl-C at each line, other threads at each moment, and no threads at all: no lock is left."""

import contextvars
import gc
import itertools
import linecache
import os
import signal
import sys
import tempfile
import threading
import unittest
import warnings
from pathlib import Path
from unittest import mock

from leasehold import Lock, LockLost, lock
from testbed import eventually
from test_lock import children, running

HOLDS = """#!/bin/sh
echo '{"lock":"it","token":1}'
cat > /dev/null
"""


def reap():
    """Waits for processes whose parent was interrupted before it could."""
    while children():
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            pass  # A thread has waited for it.


watched = lock._Program.watch


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
        """Uses a lock, and raises KeyboardInterrupt at the line of the package with this number.
        Returns the line."""
        at, lines = None, itertools.count(1)

        def trace(frame, event, _):
            nonlocal at
            if frame.f_code.co_filename != lock.__file__:
                return None
            # The interpreter does not look for signals at a `try`, nor before the end of a `with`.
            source = linecache.getline(lock.__file__, frame.f_lineno).split()
            if event == "line" and source[0] not in ("try:", "with") and next(lines) == number:
                at = (frame.f_code.co_name, frame.f_lineno)
                raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            use(Lock("it", program=self.program))
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        return at

    def no_line_leaves_the_lock(self, use):
        for number in itertools.count(1):
            # In a context without the blocks that an interrupt has kept from being forgotten.
            at = contextvars.Context().run(self.interrupted, use, number)
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

    def test_ctrl_c_is_not_replaced_by_another_error(self):
        # The thread that reads the output to its end competes with the one that was interrupted.
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
        # The second finds it released, and not lost.
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


if __name__ == "__main__":
    unittest.main()
