package leasehold.shedlock;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;

/**
 * Acquires locks by starting the program {@code leasehold}. Each acquired lock is held by one process
 * of the program, which renews the lock until {@code lockAtMostFor} has passed, or until this JVM
 * unlocks it or exits.
 */
public final class LeaseholdLockProvider implements ExtensibleLockProvider {
    private final String program;
    private final List<String> arguments;
    private final Map<String, HeldLock> held = new ConcurrentHashMap<>();
    private final Set<String> acquiring = ConcurrentHashMap.newKeySet();

    /**
     * Uses the program {@code leasehold} in {@code PATH}.
     *
     * @param arguments flags of {@code leasehold lock}, such as {@code --mongodb-uri-file=PATH}
     */
    public LeaseholdLockProvider(String... arguments) {
        this("leasehold", List.of(arguments));
    }

    /**
     * Uses another program.
     *
     * @param program the path or the name of the program
     * @param arguments flags of {@code leasehold lock}, such as {@code --mongodb-uri-file=PATH}
     */
    public LeaseholdLockProvider(String program, List<String> arguments) {
        this.program = program;
        this.arguments = List.copyOf(arguments);
    }

    /**
     * Acquires a lock without waiting for its holder. A holder that seems to be dead is watched until
     * it expires (usually 24 s). If MongoDB does not answer, it waits for up to the {@code
     * renew_deadline} of the program.
     *
     * @return the lock, or empty if another process or thread holds it
     * @throws LockException if the program fails or the thread is interrupted
     */
    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        String name = configuration.getName();
        // Inside `leasehold lock NAME -- java …`, leasehold would grant this lock to every thread.
        if (!acquiring.add(name)) {
            return Optional.empty();
        }
        try {
            HeldLock other = held.get(name);
            if (other != null && other.isValid()) {
                return Optional.empty();
            }
            Optional<HeldLock> acquired = HeldLock.acquire(name, command(configuration), configuration.getLockAtMostFor());
            acquired.ifPresent(lock -> held.put(name, lock));
            return acquired.map(lock -> new Extension(configuration, lock));
        } finally {
            acquiring.remove(name);
        }
    }

    /**
     * Returns the lock with this name that the calling thread has acquired and not unlocked. Call it
     * at the start of the work, and {@link HeldLock#check()} before each effect.
     *
     * @param name the name of the lock
     * @return the lock, which may have been lost; empty if this thread has no such lock
     */
    public Optional<HeldLock> held(String name) {
        return Optional.ofNullable(held.get(name)).filter(lock -> lock.isOf(Thread.currentThread()));
    }

    private List<String> command(LockConfiguration configuration) {
        List<String> command = new ArrayList<>(List.of(program, "lock", configuration.getName()));
        command.addAll(List.of("--no-wait", "--quiet", "--report-exit-code"));
        command.addAll(arguments);
        Duration atLeast = configuration.getLockAtLeastFor();
        if (atLeast.compareTo(Duration.ZERO) > 0) {
            // Rounded up to milliseconds.
            command.add("--at-least=" + atLeast.plusNanos(999_999).toMillis() + "ms");
        }
        return command;
    }

    /** A lock for ShedLock, until it is unlocked or extended. */
    private final class Extension extends AbstractSimpleLock {
        private final HeldLock lock;

        private Extension(LockConfiguration configuration, HeldLock lock) {
            super(configuration);
            this.lock = lock;
        }

        @Override
        protected void doUnlock() {
            lock.release();
            held.remove(lockConfiguration.getName(), lock);
        }

        @Override
        protected Optional<SimpleLock> doExtend(LockConfiguration configuration) {
            boolean extended = lock.extend(configuration.getLockAtMostFor(), configuration.getLockAtLeastFor());
            return extended ? Optional.of(new Extension(configuration, lock)) : Optional.empty();
        }
    }
}
