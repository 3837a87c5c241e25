"""A block ends with its lock or leadership, and a cancelled wait leaves nothing behind."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import unittest
import unittest.mock
import warnings

from leasehold import LockLost, LockNotAcquired, NotLeader
from test_events import Server, event
from test_lock import children, listed
from testbed import PROGRAM, STORE, Daemon, boottime_ns, eventually, leasehold

if sys.version_info < (3, 11):
    raise unittest.SkipTest("leasehold.aio needs Python 3.11")

from leasehold import aio


def of(name, **options):
    return aio.lock(name, program=PROGRAM, arguments=[STORE], **options)


async def soon(condition):
    """Waits until the condition is true, while the event loop runs."""
    return await asyncio.to_thread(eventually, condition)


async def forever():
    """Waits for a cancellation."""
    await asyncio.sleep(60)
    raise AssertionError("not cancelled")


class Terms(unittest.IsolatedAsyncioTestCase):
    async def led(self, **fields):
        """Returns a follower of a candidate that leads, and its stream."""
        server = Server(self)
        follower = aio.follow(server.address)
        self.addCleanup(follower.close)
        stream = await asyncio.to_thread(server.accept)
        stream.sendall(event(**fields))
        return follower, stream

    async def test_a_step_down_cancels_the_block(self):
        follower, stream = await self.led()
        with self.assertRaises(NotLeader):
            async with follower.lead(30) as term:
                self.assertEqual((term.token, follower.token()), (7, 7))
                term.check()
                stream.sendall(event(leader=False))
                await forever()
        self.assertFalse(term.is_valid())
        self.assertTrue(await term.wait())
        self.assertRaises(NotLeader, term.check)
        self.assertEqual(asyncio.current_task().cancelling(), 0)

    async def test_a_block_that_misses_its_cancellation_is_cancelled_again(self):
        follower, stream = await self.led()
        with self.assertRaises(NotLeader):
            async with follower.lead(30):
                stream.sendall(event(leader=False))
                # wait_for of Python 3.11 does this if its result arrives with the cancellation.
                with contextlib.suppress(asyncio.CancelledError):
                    await forever()
                await forever()
        self.assertEqual(asyncio.current_task().cancelling(), 0)

    async def test_a_silent_stream_cancels_the_block_at_the_deadline(self):
        until = boottime_ns() + 1_500_000_000
        follower, stream = await self.led(valid_until_boottime_ns=until)
        with self.assertRaises(NotLeader):
            async with follower.lead(30) as term:
                try:
                    await forever()
                finally:
                    cancelled = boottime_ns()
        self.assertGreaterEqual(cancelled, until)
        self.assertLess(cancelled, until + 5_000_000_000)
        # A later event of the same token does not make the term valid again.
        stream.sendall(event())
        self.assertTrue((await follower.lead(30)).is_valid())
        self.assertFalse(term.is_valid())

    async def test_a_block_that_never_waits_reports_the_end(self):
        follower, stream = await self.led()
        with self.assertRaises(NotLeader):
            async with follower.lead(30) as term:
                stream.sendall(event(leader=False))
                eventually(lambda: not term.is_valid())

    async def test_other_exceptions_pass(self):
        follower, stream = await self.led()
        for error in (ZeroDivisionError, TimeoutError):
            with self.assertRaises(error):
                async with follower.lead(30) as term:
                    raise error
            term.check()
        with self.assertRaises(ZeroDivisionError):
            async with follower.lead(30) as term:
                stream.sendall(event(leader=False))
                eventually(lambda: not term.is_valid())
                raise ZeroDivisionError

    async def test_a_cancellation_from_outside_stays_one(self):
        follower, stream = await self.led()
        entered = asyncio.Event()

        async def work():
            async with follower.lead(30):
                entered.set()
                await forever()

        task = asyncio.create_task(work())
        await entered.wait()
        stream.sendall(event(leader=False))
        eventually(lambda: not follower.is_leader())
        task.cancel()  # Before the event loop has seen the end of the term.
        with self.assertRaises(asyncio.CancelledError):
            await task

    async def test_waits_end(self):
        follower, _ = await self.led(leader=False)
        with self.assertRaisesRegex(TimeoutError, "does not lead"):
            await follower.lead(0.2)
        waiting = asyncio.create_task(self.wait_for(follower))
        await asyncio.sleep(0)
        listeners = follower._follower._changed.listeners
        self.assertEqual(len(listeners), 1)
        waiting.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await waiting
        self.assertEqual(listeners, {})
        async with follower:
            pass
        with self.assertRaisesRegex(ValueError, "closed"):
            await follower.lead()
        with self.assertRaisesRegex(ValueError, "not -1"):
            await follower.lead(-1)

    async def wait_for(self, follower):
        return await follower.lead()

    async def test_the_terms_of_a_daemon(self):
        daemon = await asyncio.to_thread(Daemon, self, "python-aio", "a")
        async with aio.follow(daemon.address) as follower:
            with self.assertRaises(NotLeader):
                async with follower.lead(60) as term:
                    self.assertFalse(await term.wait(0))
                    daemon.kill()
                    await forever()
            daemon.start()
            async with follower.lead(60) as later:
                self.assertGreater(later.token, term.token)


class Locks(unittest.IsolatedAsyncioTestCase):
    def tearDown(self):
        eventually(lambda: children() == [])

    async def test_it_is_held_in_the_block_and_released_at_its_end(self):
        async with of("aio-block") as held:
            self.assertEqual((held.name, held.token, held.slot), ("aio-block", 1, None))
            held.check()
            self.assertFalse(await held.wait(0))
            with self.assertRaisesRegex(LockNotAcquired, "held by"):
                await of("aio-block", wait=0)
        self.assertRaises(LockLost, held.check)
        self.assertTrue(await held.wait())
        again = await of("aio-block", wait=0)
        self.assertEqual(again.token, 2)
        await again.release()
        await again.release()

    async def test_an_entry_is_for_one_block(self):
        entry = of("aio-entry")
        async with entry:
            with self.assertRaisesRegex(RuntimeError, "already entered"):
                async with entry:
                    pass

    async def test_a_loss_cancels_the_block(self):
        with self.assertRaisesRegex(LockLost, "was lost"):
            async with of("aio-loss") as held:
                broken = await asyncio.to_thread(
                    leasehold, "locks", "break", "aio-loss", "--force", "--yes", STORE
                )
                self.assertEqual(broken.returncode, 0, broken)
                await forever()
        self.assertFalse(held.is_valid())
        with self.assertRaises(LockLost):
            await held.release()

    async def test_a_killed_program_cancels_the_block_of_a_task_group(self):
        with self.assertRaises(LockLost) as lost:
            async with of("aio-killed"):
                async with asyncio.TaskGroup() as group:
                    group.create_task(forever())
                    os.kill(int(children()[0]), signal.SIGKILL)
        self.assertEqual(lost.exception.code, -9)

    async def test_a_loss_cancels_a_block_that_misses_its_cancellation_again(self):
        with self.assertRaises(LockLost):
            async with of("aio-missed"):
                os.kill(int(children()[0]), signal.SIGKILL)
                with contextlib.suppress(asyncio.CancelledError):
                    await forever()
                await forever()
        self.assertEqual(asyncio.current_task().cancelling(), 0)

    async def test_exceptions_and_cancellations_release_it(self):
        with self.assertRaises(ZeroDivisionError):
            async with of("aio-error"):
                raise ZeroDivisionError
        with self.assertRaises(TimeoutError):
            async with asyncio.timeout(None) as scope, of("aio-error", wait=0):
                scope.reschedule(0)
                await forever()
        async with of("aio-error", wait=0) as held:
            self.assertEqual(held.token, 3)

    async def test_a_cancelled_wait_leaves_the_queue(self):
        async with of("aio-queue"):
            with self.assertRaises(TimeoutError):
                async with asyncio.timeout(None) as scope:
                    waiting = asyncio.create_task(soon(lambda: len(listed("aio-queue")[1]) == 1))
                    waiting.add_done_callback(lambda _: scope.reschedule(0))
                    await of("aio-queue")
            await soon(lambda: listed("aio-queue")[1] == [])

    async def test_a_lock_that_meets_the_cancellation_is_released(self):
        async def acquire():
            return await of("aio-race")

        task = asyncio.create_task(acquire())
        await asyncio.sleep(0)
        # The event loop does not run, so it does not learn of the lock before the cancellation.
        eventually(lambda: listed("aio-race")[0])
        eventually(lambda: "leasehold-acquire" not in [one.name for one in threading.enumerate()])
        task.cancel()
        with warnings.catch_warnings(record=True) as dropped:
            warnings.simplefilter("always")
            with self.assertRaises(asyncio.CancelledError):
                await task
        self.assertEqual(dropped, [], "it was released by the garbage collector")
        async with of("aio-race", wait=60):
            pass

    async def test_a_release_that_is_not_confirmed_is_reported(self):
        held = await of("aio-frozen")
        os.kill(int(children()[0]), signal.SIGSTOP)
        release = asyncio.create_task(held.release())
        await asyncio.sleep(0)
        self.assertFalse(held.is_valid())
        with unittest.mock.patch.object(aio.locks, "RELEASE_SECONDS", 0.3):
            with self.assertRaisesRegex(LockLost, "did not confirm"):
                await held.release()
        release.cancel()

    async def test_a_forked_process_leaves_the_lock(self):
        async with of("aio-fork") as held:
            child = os.fork()
            if child == 0:
                code = 40 + held.is_valid()
                try:
                    held.release().send(None)
                except StopIteration:
                    os._exit(code)
                os._exit(50)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            self.assertEqual(os.waitstatus_to_exitcode(status), 40)
            held.check()


if __name__ == "__main__":
    unittest.main()
