package leasehold.shedlock;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.concurrent.ExecutionException;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.test.support.AbstractExtensibleLockProviderIntegrationTest;
import net.javacrumbs.shedlock.test.support.FuzzTester;
import org.junit.jupiter.api.Test;

/** The tests of ShedLock for every provider that can extend locks. */
class ContractTest extends AbstractExtensibleLockProviderIntegrationTest {
    /** Each lock has its own provider, so that only leasehold excludes holders. */
    @Override
    protected ExtensibleLockProvider getLockProvider() {
        return configuration -> Testbed.provider().lock(configuration);
    }

    @Override
    protected void assertLocked(String name) {
        try {
            assertTrue(Testbed.isLocked(name), name);
        } catch (Exception error) {
            throw new AssertionError(error);
        }
    }

    /** A lock that has reached lockAtMostFor needs some milliseconds for its release. */
    @Override
    protected void assertUnlocked(String name) {
        try {
            Testbed.eventually(() -> !Testbed.isLocked(name));
        } catch (Exception error) {
            throw new AssertionError(error);
        }
    }

    @Override
    protected void doTestShouldLockAtLeastFor(int sleepForMs) throws InterruptedException {
        // A busy machine delays the write that states the minimum duration.
        super.doTestShouldLockAtLeastFor(2_000);
    }

    /** Fewer iterations, because each attempt starts a process. */
    @Test
    @Override
    public void fuzzTestShouldPass() throws ExecutionException, InterruptedException {
        new FuzzTester(getLockProvider(), Duration.ofMillis(1), Duration.ofMinutes(5), 3).doFuzzTest();
        new FuzzTester(Testbed.provider(), Duration.ofMillis(1), Duration.ofMinutes(5), 3).doFuzzTest();
    }
}
