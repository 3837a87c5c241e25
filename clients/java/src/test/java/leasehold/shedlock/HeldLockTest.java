package leasehold.shedlock;

import static leasehold.shedlock.Testbed.PROGRAM;
import static leasehold.shedlock.Testbed.STORE;
import static leasehold.shedlock.Testbed.acquire;
import static leasehold.shedlock.Testbed.configuration;
import static leasehold.shedlock.Testbed.eventually;
import static leasehold.shedlock.Testbed.isLocked;
import static leasehold.shedlock.Testbed.leasehold;
import static leasehold.shedlock.Testbed.provider;
import static leasehold.shedlock.Testbed.script;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockingTaskExecutor;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;
import org.slf4j.Logger;
import org.slf4j.simple.SimpleLogger;

/** A lock counts as held only while leasehold holds it. */
class HeldLockTest {
    private final LeaseholdLockProvider provider = provider();

    @AfterEach
    void noProcessIsLeft() {
        List<ProcessHandle> left = Testbed.children().toList();
        left.forEach(ProcessHandle::destroyForcibly);
        assertEquals(List.of(), left);
    }

    private HeldLock held(String name) {
        return provider.held(name).orElseThrow();
    }

    /** Runs a step of a test, and returns what was logged meanwhile. */
    private static String logged(Executable step) throws Throwable {
        PrintStream before = System.err;
        ByteArrayOutputStream log = new ByteArrayOutputStream();
        System.setErr(new PrintStream(log, true));
        try {
            step.execute();
        } finally {
            System.setErr(before);
        }
        return log.toString();
    }

    private static void isLost(HeldLock held) throws Exception {
        held.lost().toCompletableFuture().get(Testbed.LONG.toSeconds(), TimeUnit.SECONDS);
        assertFalse(held.isValid());
        assertThrows(LockException.class, held::check);
    }

    @Test
    void theWorkSeesItsLockAndToken() throws Throwable {
        LockingTaskExecutor executor = new DefaultLockingTaskExecutor(provider);
        AtomicReference<HeldLock> seen = new AtomicReference<>();
        for (long token = 1; token <= 2; token++) {
            long expected = token;
            executor.executeWithLock((Runnable) () -> {
                HeldLock held = held("java-work");
                held.check();
                assertEquals("java-work", held.name());
                assertEquals(expected, held.token());
                seen.set(held);
                assertEquals(Optional.empty(), CompletableFuture.supplyAsync(() -> provider.held("java-work")).join());
                assertEquals(Optional.empty(), CompletableFuture.supplyAsync(() -> lock(provider, "java-work")).join());
                assertEquals(Optional.empty(), lock(provider(), "java-work"));
                held.check();
            }, configuration("java-work", Duration.ofMinutes(5), Duration.ZERO));
            assertFalse(seen.get().isValid());
            assertThrows(LockException.class, seen.get()::check);
            assertFalse(seen.get().lost().toCompletableFuture().isDone());
            assertEquals(Optional.empty(), provider.held("java-work"));
        }
    }

    private static Optional<SimpleLock> lock(LeaseholdLockProvider provider, String name) {
        return provider.lock(configuration(name, Duration.ofMinutes(5), Duration.ZERO));
    }

    @Test
    void aBrokenLockIsLost() throws Throwable {
        SimpleLock lock = acquire(provider, "java-broken");
        HeldLock held = held("java-broken");
        String log = logged(() -> {
            assertEquals(0, leasehold("locks", "break", "java-broken", "--force", "--yes", STORE));
            isLost(held);
        });
        assertTrue(log.contains("lock java-broken: lost"), log);
        // Another thread has the next lock; the work of this one must not see it.
        SimpleLock next = CompletableFuture.supplyAsync(() -> acquire(provider, "java-broken")).join();
        assertEquals(Optional.empty(), provider.held("java-broken"));
        assertFalse(held.isValid());
        assertEquals(Optional.empty(), lock.extend(Duration.ofMinutes(5), Duration.ZERO));
        assertTrue(isLocked("java-broken"));
        next.unlock();
        assertFalse(isLocked("java-broken"));
    }

    @Test
    void aKilledProgramHasLostItsLock() throws Exception {
        SimpleLock lock = acquire(provider, "java-killed");
        Testbed.signal("KILL");
        isLost(held("java-killed"));
        lock.unlock();
        assertEquals(Optional.empty(), provider.held("java-killed"));
    }

    @Test
    void theExitOfTheProgramIsNoticedByTheNextCheck(@TempDir Path directory) throws Exception {
        // A process that the program has left behind keeps the output open.
        String line = "{\"lock\":\"it\",\"token\":1}";
        LeaseholdLockProvider fake = script(directory, "sleep 1000 & echo $! > \"$0.pid\"; echo '" + line + "'; read end");
        SimpleLock lock = acquire(fake, "it");
        HeldLock held = fake.held("it").orElseThrow();
        Testbed.signal("KILL");
        eventually(() -> !held.isValid());
        lock.unlock();
        long left = Long.parseLong(Files.readString(directory.resolve("leasehold.pid")).strip());
        ProcessHandle.of(left).orElseThrow().destroyForcibly();
    }

    @Test
    void itEndsAtLockAtMostForWhileTheWorkRuns() throws Exception {
        SimpleLock lock = provider.lock(configuration("java-expired", Duration.ofMillis(300), Duration.ZERO)).orElseThrow();
        HeldLock held = held("java-expired");
        isLost(held);
        eventually(() -> !isLocked("java-expired"));
        lock.unlock();
        assertThrows(LockException.class, held::check);
    }

    @Test
    void aFrozenProgramIsKilledAtTheUnlock() throws Throwable {
        Duration max = Program.releaseMax;
        Program.releaseMax = Duration.ofMillis(200);
        try {
            SimpleLock lock = acquire(provider, "java-frozen");
            Testbed.signal("STOP");
            String log = logged(lock::unlock);
            assertTrue(log.contains("lock java-frozen: leasehold did not confirm the release"), log);
        } finally {
            Program.releaseMax = max;
        }
    }

    @Test
    void theMinimumDurationOutlivesTheProgram() throws Exception {
        Duration atLeast = Duration.ofMinutes(5);
        SimpleLock lock = provider.lock(configuration("java-minimum", atLeast, atLeast)).orElseThrow();
        lock.unlock();
        assertEquals(0, Testbed.children().count());
        assertTrue(isLocked("java-minimum"));
    }

    @Test
    void anInterruptedThreadWaitsForTheRelease() throws Throwable {
        SimpleLock lock = acquire(provider, "java-interrupted");
        Thread.currentThread().interrupt();
        assertEquals("", logged(lock::unlock));
        assertTrue(Thread.interrupted());
        assertFalse(isLocked("java-interrupted"));
    }

    @Test
    void anInterruptedAcquisitionHoldsNothing(@TempDir Path directory) throws Exception {
        LeaseholdLockProvider fake = script(directory, "exec sleep 1000");
        Thread.currentThread().interrupt();
        assertThrows(LockException.class, () -> acquire(fake, "it"));
        assertTrue(Thread.interrupted());
        eventually(() -> Testbed.children().count() == 0);
    }

    /** Starts a JVM that runs {@link Other}, perhaps under another command. */
    private static Process otherJvm(String name, String... before) throws IOException {
        String path = Stream.of(HeldLock.class, HeldLockTest.class, SimpleLock.class, Logger.class, SimpleLogger.class)
                .map(part -> new File(part.getProtectionDomain().getCodeSource().getLocation().getPath()).getPath())
                .collect(Collectors.joining(File.pathSeparator));
        String java = ProcessHandle.current().info().command().orElseThrow();
        List<String> command = new ArrayList<>(List.of(before));
        command.addAll(List.of(java, "-XX:-UsePerfData", "-cp", path, Other.class.getName(), name));
        return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }

    /** Acquires a lock, tries to acquire it again in another thread, and waits to be killed. */
    static final class Other {
        public static void main(String[] arguments) throws InterruptedException {
            LeaseholdLockProvider provider = provider();
            acquire(provider, arguments[0]);
            Optional<SimpleLock> second = CompletableFuture.supplyAsync(() -> lock(provider, arguments[0])).join();
            System.out.println(second.isEmpty() ? "held once" : "held twice");
            Thread.sleep(Testbed.LONG.toMillis());
        }
    }

    @Test
    void insideANestedLockOneThreadHoldsIt() throws Exception {
        Process outer = otherJvm("java-nested", PROGRAM, "lock", "java-nested", STORE, "--");
        try (BufferedReader output = outer.inputReader()) {
            assertEquals("held once", output.readLine());
        } finally {
            outer.destroy();
            outer.waitFor();
        }
    }

    @Test
    void aKilledJvmReleasesIt() throws Exception {
        Process jvm = otherJvm("java-jvm");
        try (BufferedReader output = jvm.inputReader()) {
            assertEquals("held once", output.readLine());
            assertTrue(isLocked("java-jvm"));
        } finally {
            jvm.destroyForcibly().waitFor();
        }
        eventually(() -> !isLocked("java-jvm"));
    }

    @Test
    void aProgramThatFailsIsReported() {
        LeaseholdLockProvider flag = new LeaseholdLockProvider(PROGRAM, List.of("--no-such-flag"));
        assertTrue(failure(flag).contains("leasehold exited with code 64"), failure(flag));
        LeaseholdLockProvider missing = new LeaseholdLockProvider("/nonexistent", List.of());
        assertTrue(failure(missing).contains("/nonexistent"), failure(missing));
        LeaseholdLockProvider store = new LeaseholdLockProvider(PROGRAM, List.of("--mongodb-uri-file=/nonexistent"));
        assertTrue(failure(store).contains("/nonexistent"), failure(store));
    }

    private static String failure(LeaseholdLockProvider provider) {
        return assertThrows(LockException.class, () -> acquire(provider, "it")).getMessage();
    }

    @Test
    void anUnexpectedLineIsNotALock(@TempDir Path directory) throws Exception {
        List<String> lines = List.of(
                "nonsense",
                "[]",
                "null",
                "{\"lock\":\"other\",\"token\":1}",
                "{\"lock\":\"it\"}",
                "{\"lock\":\"it\",\"token\":0}",
                "{\"lock\":\"it\",\"token\":-1}",
                "{\"lock\":\"it\",\"token\":1.5}",
                "{\"lock\":\"it\",\"token\":true}",
                "{\"lock\":\"it\",\"token\":\"1\"}",
                "{\"lock\":\"it\",\"token\":99999999999999999999}",
                "{\"lock\":\"it\",\"token\":1} x",
                "{\"lock\":\"it\",\"token\":1");
        for (String line : lines) {
            LeaseholdLockProvider fake = script(directory, "printf '%s\\n' '" + line + "'; cat > /dev/null");
            String failure = failure(fake);
            assertTrue(failure.contains("unexpected"), failure);
        }
        String line = "{\"lock\":\"it\",\"token\":1}";
        for (int length = 1; length <= line.length(); length++) {
            LeaseholdLockProvider fake = script(directory, "printf '%s' '" + line.substring(0, length) + "'");
            assertTrue(failure(fake).contains("unexpected"), line.substring(0, length));
        }
        String failure = failure(script(directory, "printf '%05000d' 1; exec sleep 1000"));
        assertTrue(failure.contains("unexpected"), failure);
    }

    @Test
    void onlyTheLastLineConfirmsARelease() {
        String line = "{\"exit_code\":0,\"lock\":\"it\",\"error\":\"not \\\"there\\\"\", \"later\" : null}\n";
        assertEquals("not \"there\"", Program.text(Program.fields(line).get("error")));
        assertEquals("0", Program.fields(line).get("exit_code"));
        for (int length = 0; length < line.length(); length++) {
            assertEquals(0, Program.fields(line.substring(0, length)).size(), line.substring(0, length));
        }
        assertFalse(new Program.Result(0, false).confirmsRelease());
        assertFalse(new Program.Result(76, true).confirmsRelease());
        assertTrue(new Program.Result(143, true).confirmsRelease());
    }
}
