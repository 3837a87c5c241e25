"""Threads, tasks, forks, signals, cancellation and collection: a block releases only its own lock."""

import asyncio
import contextlib
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import unittest
import warnings
import weakref

from leasehold import Lock, LockError, LockNotAcquired
from testbed import LONG, PROGRAM, STORE, eventually
from test_lock import children, listed, of


def is_free(name, **options):
    """True if the lock can be acquired now."""
    try:
        of(name, wait=0, **options).acquire().release()
    except LockNotAcquired:
        return False
    return True


class Blocks(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(children(), [], "a process is left")

    def test_the_end_of_a_block_releases_the_lock_of_its_own_thread(self):
        shared = of("python-threads", slots=2)
        entered, leave, left = threading.Event(), threading.Event(), []

        def other():
            with shared as held:
                entered.set()
                leave.wait()
                left.append(held.is_valid())

        with shared as held:
            thread = threading.Thread(target=other)
            thread.start()
            entered.wait()
        self.assertFalse(held.is_valid())
        leave.set()
        thread.join()
        self.assertEqual(left, [True])

    def test_the_end_of_a_block_releases_the_lock_of_its_own_task(self):
        shared = of("python-tasks", slots=2)

        async def main():
            entered, leave = asyncio.Event(), asyncio.Event()

            async def other():
                with shared as held:
                    entered.set()
                    await leave.wait()
                    held.check()

            with shared as held:
                task = asyncio.create_task(other())
                await entered.wait()
            self.assertFalse(held.is_valid())
            leave.set()
            await task

        asyncio.run(main())

    def test_a_block_that_another_thread_leaves_is_released_if_it_is_the_only_one(self):
        lock = of("python-other-thread", slots=2)
        held = lock.__enter__()
        thread = threading.Thread(target=lock.__exit__, args=(None, None, None))
        thread.start()
        thread.join()
        self.assertFalse(held.is_valid())
        one, other = [], []
        threads = [threading.Thread(target=lambda to=to: to.append(lock.__enter__())) for to in (one, other)]
        for thread in threads:
            thread.start()
            thread.join()
        # The lock object cannot know which of the two locks this exit should release.
        self.assertRaises(RuntimeError, lock.__exit__, None, None, None)
        for held in (*one, *other):
            held.check()
            held.release()

    def test_generators_that_end_in_any_order_release_their_own_locks(self):
        shared = of("python-generators", slots=2)

        @contextlib.contextmanager
        def job():
            with shared as held:
                yield held

        one, other = job(), job()
        first, second = one.__enter__(), other.__enter__()
        one.__exit__(None, None, None)
        self.assertFalse(first.is_valid())
        second.check()
        other.__exit__(None, None, None)
        self.assertFalse(second.is_valid())

    def test_a_generator_that_is_dropped_releases_its_own_lock(self):
        shared = of("python-dropped-generator", slots=2)

        def job():
            with shared as held:
                yield held

        generator = job()
        first = next(generator)
        with shared as second:
            # Another thread drops the lock in its own block.
            dropping = [generator]
            del generator

            def drop():
                dropping.clear()
                gc.collect()

            thread = threading.Thread(target=drop)
            thread.start()
            thread.join()
            self.assertFalse(first.is_valid())
            second.check()

    def test_an_asynchronous_generator_that_another_task_closes_releases_its_own_lock(self):
        shared = of("python-asynchronous-generator", slots=2)

        async def job():
            with shared as held:
                yield held

        async def main():
            generator = job()
            first = await asyncio.create_task(generator.__anext__())

            async def close():
                with shared as held:
                    await generator.aclose()
                    held.check()

            await asyncio.create_task(close())
            self.assertFalse(first.is_valid())

        asyncio.run(main())

    def test_nested_blocks_of_one_function_are_released_in_their_order(self):
        shared = of("python-nested", slots=2)
        with shared as outer:
            with shared as inner:
                pass
            self.assertFalse(inner.is_valid())
            outer.check()
        self.assertFalse(outer.is_valid())

    def test_blocks_that_cannot_be_told_apart_release_nothing(self):
        shared = of("python-stacks", slots=2)
        one, other = contextlib.ExitStack(), contextlib.ExitStack()
        held = [one.enter_context(shared), other.enter_context(shared)]
        for stack in (one, other):
            with self.assertRaisesRegex(RuntimeError, "To fix: with lock.acquire"):
                stack.close()
        for lock in held:
            lock.check()
            lock.release()
        with contextlib.ExitStack() as stack:
            held = stack.enter_context(shared.acquire())
        self.assertFalse(held.is_valid())

    def test_a_block_keeps_nothing_after_its_end(self):
        class Local:
            pass

        shared = of("python-frames")

        def job():
            local = Local()
            with shared:
                return weakref.ref(local)

        self.assertIsNone(job()())

    def test_a_lock_that_is_held_is_a_block(self):
        with of("python-held-block").acquire() as held:
            held.check()
        self.assertFalse(held.is_valid())


class Abandoned(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(children(), [], "a process is left")

    def test_a_cancelled_wait_leaves_the_queue(self):
        held = of("python-cancelled").acquire()

        async def main():
            future = asyncio.wrap_future(of("python-cancelled").start())
            while not listed("python-cancelled")[1]:
                await asyncio.sleep(0.01)
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(future, 0)

        asyncio.run(main())
        eventually(lambda: not listed("python-cancelled")[1])
        held.release()
        eventually(lambda: not children())
        self.assertTrue(is_free("python-cancelled"))

    def test_a_future_has_the_lock_or_the_error(self):
        held = of("python-future").start().result()
        with self.assertRaises(LockNotAcquired):
            of("python-future", wait=0).start().result()
        held.release()

    def test_a_lock_that_nobody_refers_to_is_released(self):
        held = of("python-dropped").acquire()
        self.assertFalse(is_free("python-dropped"))
        with self.assertWarns(ResourceWarning):
            del held
            gc.collect()
        eventually(lambda: not children())
        self.assertTrue(is_free("python-dropped"))

    def test_on_lost_keeps_a_lock_that_nobody_refers_to(self):
        def future(lock):
            lock.start().result()

        async def task(lock):
            await asyncio.wrap_future(lock.start())

        uses = {
            "acquire": Lock.acquire,
            "enter": Lock.__enter__,
            "stack": lambda lock: contextlib.ExitStack().enter_context(lock),
            "future": future,
            "task": lambda lock: asyncio.run(task(lock)),
        }
        for use in uses:
            name, lost = f"python-only-{use}", threading.Event()
            with self.subTest(use), warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                uses[use](of(name, on_lost=lost.set))
                gc.collect()
                self.assertFalse(is_free(name))
                self.assertFalse(lost.is_set())
                os.kill(int(children()[0]), signal.SIGKILL)
                self.assertTrue(lost.wait(LONG))
                eventually(lambda: not children())

    def test_on_lost_keeps_no_lock_after_its_end(self):
        for release in (True, False):
            held = of("python-kept", on_lost=lambda: None).acquire()
            reference = weakref.ref(held)
            if release:
                held.release()
            else:
                os.kill(int(children()[0]), signal.SIGKILL)
                self.assertTrue(held.wait(LONG))
            with self.subTest(release=release), warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                del held
                eventually(lambda: gc.collect() is not None and reference() is None)

    def test_a_cancelled_wait_leaves_no_lock_that_on_lost_keeps(self):
        # The task acquires the lock before its cancellation, and nothing uses its result.
        lost = threading.Event()
        future = of("python-unused-future", on_lost=lost.set).start()
        eventually(future.done)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            del future
            eventually(lambda: gc.collect() is not None and is_free("python-unused-future"))
        self.assertFalse(lost.is_set())
        eventually(lambda: not children())

    def test_without_descriptors_nothing_is_left_and_the_other_lock_is_held(self):
        def descriptors():
            return len(os.listdir("/proc/self/fd"))

        with of("python-descriptors") as held:
            before = descriptors()
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
            for more in range(6):
                resource.setrlimit(resource.RLIMIT_NOFILE, (before + more - 1, hard))
                with self.assertRaises((OSError, LockError)):
                    of("python-descriptors-other", wait=0).acquire()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            self.assertEqual(descriptors(), before)
            held.check()


class Processes(unittest.TestCase):
    def script(self, text, *arguments, **options):
        """Starts an interpreter that has `lock`."""
        begin = "import os, signal, sys, time\nfrom leasehold import Lock, LockNotAcquired\n"
        begin += f"def of(name, **more): return Lock(name, program={PROGRAM!r}, arguments=[{STORE!r}], **more)\n"
        process = subprocess.Popen(
            [sys.executable, "-B", "-c", begin + text, *arguments],
            stdout=subprocess.PIPE, text=True, **options,
        )  # fmt: skip
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_a_fork_neither_releases_nor_keeps_the_lock(self):
        held = of("python-fork").acquire()
        keep, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(theirs)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with held:
                    pass
                del held
                gc.collect()
            os.read(keep, 1)  # The process outlives the lock.
            os._exit(0)
        os.close(keep)
        held.check()
        start = time.monotonic()
        held.release()
        self.assertLess(time.monotonic() - start, 5, "the fork kept the pipe")
        self.assertTrue(is_free("python-fork"))
        os.close(theirs)
        os.waitpid(child, 0)

    def test_a_fork_does_not_keep_the_lock_of_a_killed_parent(self):
        process = self.script(
            "held = of('python-fork-killed').acquire()\n"
            "if os.fork() == 0: sys.stdin.read()\n"
            "else: print('held', flush=True); time.sleep(1000)\n",
            stdin=subprocess.PIPE,
        )
        with process.stdin:
            self.assertEqual(process.stdout.readline(), "held\n")
            process.kill()
            eventually(lambda: is_free("python-fork-killed"))

    def test_a_waiter_ends_with_its_parent(self):
        with of("python-orphan"):
            process = self.script("of('python-orphan').acquire()")
            eventually(lambda: listed("python-orphan")[1])
            process.kill()
            eventually(lambda: not listed("python-orphan")[1])

    def test_ctrl_c_that_is_handled_leaves_the_lock(self):
        process = self.script(
            "with of('python-interrupt') as held:\n"
            "    try: print('held', flush=True); time.sleep(1000)\n"
            "    except KeyboardInterrupt: pass\n"
            "    print('handled', flush=True)\n"
            "    sys.stdin.readline()\n"
            "    held.check()\n",
            stdin=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self.assertEqual(process.stdout.readline(), "held\n")
        os.killpg(process.pid, signal.SIGINT)
        self.assertEqual(process.stdout.readline(), "handled\n")
        self.assertFalse(is_free("python-interrupt"))
        groups = subprocess.run(
            ["ps", "-o", "sid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=True
        ).stdout.split()
        self.assertNotIn(str(process.pid), groups)
        with process.stdin:
            process.stdin.write("\n")
        process.wait()
        self.assertEqual(process.returncode, 0)

    def test_the_reason_of_a_refusal_is_known_without_sigchld(self):
        with of("python-sigchld"):
            ignored = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
            reaped = (
                "import threading\n"
                "def reap():\n"
                "    while True:\n"
                "        try: os.waitpid(-1, 0)\n"
                "        except ChildProcessError: time.sleep(0.001)\n"
                "threading.Thread(target=reap, daemon=True).start()\n"
            )
            for text in (ignored, reaped):
                process = self.script(
                    text + "of('python-sigchld-own').acquire().release()\n"
                    "try: of('python-sigchld', wait=0).acquire()\n"
                    "except LockNotAcquired as error: print(error.code, flush=True)\n"
                )
                self.assertEqual(process.stdout.read(), "75\n")


if __name__ == "__main__":
    unittest.main()
