package leasehold.shedlock;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.stream.Stream;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;

/** Programs and conditions for the tests. {@code cargo test --test clients} sets the environment. */
final class Testbed {
    static final String PROGRAM = setting("PROGRAM");
    static final String STORE = "--mongodb-uri-file=" + setting("URI_FILE");
    static final Duration LONG = Duration.ofSeconds(60);

    private Testbed() {}

    private static String setting(String name) {
        return Objects.requireNonNull(
                System.getenv("CLIENT_TEST_" + name), "CLIENT_TEST_" + name + " is not set: run cargo test --test clients");
    }

    static LeaseholdLockProvider provider() {
        return new LeaseholdLockProvider(PROGRAM, List.of(STORE));
    }

    static LockConfiguration configuration(String name, Duration atMost, Duration atLeast) {
        return new LockConfiguration(Instant.now(), name, atMost, atLeast);
    }

    static SimpleLock acquire(LockProvider provider, String name) {
        return provider.lock(configuration(name, Duration.ofMinutes(5), Duration.ZERO)).orElseThrow();
    }

    /** Runs a command to its end, and returns its exit code. */
    static int leasehold(String... words) throws IOException, InterruptedException {
        List<String> command = new ArrayList<>(List.of(PROGRAM));
        command.addAll(List.of(words));
        ProcessBuilder builder = new ProcessBuilder(command).redirectOutput(ProcessBuilder.Redirect.DISCARD);
        return builder.redirectError(ProcessBuilder.Redirect.INHERIT).start().waitFor();
    }

    static boolean isLocked(String name) throws IOException, InterruptedException {
        int code = leasehold("lock", name, STORE, "--no-wait", "--quiet", "--", "true");
        if (code != 0 && code != 75) {
            throw new AssertionError("leasehold lock exited with " + code);
        }
        return code == 75;
    }

    static void eventually(Callable<Boolean> condition) throws Exception {
        long start = System.nanoTime();
        while (!condition.call()) {
            if (System.nanoTime() - start > LONG.toNanos()) {
                throw new AssertionError("the condition does not hold");
            }
            Thread.sleep(5);
        }
    }

    static Stream<ProcessHandle> children() {
        return ProcessHandle.current().children().filter(ProcessHandle::isAlive);
    }

    static void signal(String signal) throws IOException, InterruptedException {
        String child = Long.toString(children().findFirst().orElseThrow().pid());
        new ProcessBuilder("kill", "-" + signal, child).inheritIO().start().waitFor();
    }

    /** Writes a shell script as a program. */
    static LeaseholdLockProvider script(Path directory, String script) throws IOException {
        Path program = directory.resolve("leasehold");
        Files.writeString(program, "#!/bin/sh\n" + script + "\n");
        Files.setPosixFilePermissions(program, PosixFilePermissions.fromString("rwx------"));
        return new LeaseholdLockProvider(program.toString(), List.of());
    }
}
