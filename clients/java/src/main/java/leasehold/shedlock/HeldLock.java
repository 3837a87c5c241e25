package leasehold.shedlock;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ScheduledFuture;
import net.javacrumbs.shedlock.support.LockException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** An acquired lock. A lock that was lost or unlocked never becomes valid again. */
public final class HeldLock {
    private static final Logger LOGGER = LoggerFactory.getLogger(HeldLock.class);
    private static final int NOT_ACQUIRED = 75;
    /** Avoids overflows. */
    private static final Duration LONGEST = Duration.ofDays(36_500);

    /** Why a lock is no longer valid. */
    private enum End {
        UNLOCKED("was unlocked"),
        EXPIRED("ended, because lockAtMostFor has passed"),
        LOST("was lost");

        private final String text;

        End(String text) {
            this.text = text;
        }
    }

    private final String name;
    private final long token;
    private final Thread thread = Thread.currentThread();
    private final Program program;
    private final CompletableFuture<Void> lost = new CompletableFuture<>();
    // Instants of System.nanoTime().
    private long atMostUntil;
    private long atLeastUntil = System.nanoTime();
    private ScheduledFuture<?> expiry;
    /** Null while the lock is held. */
    private End end;

    private HeldLock(String name, long token, Program program, Duration atMost) {
        this.name = name;
        this.token = token;
        this.program = program;
        expireAfter(atMost);
        program.ended().thenRun(this::isValid);
    }

    /** Starts the program, and returns the lock unless another process holds it. */
    static Optional<HeldLock> acquire(String name, List<String> command, Duration atMost) {
        Program program;
        try {
            program = Program.start(name, command);
        } catch (IOException error) {
            throw new LockException("lock " + name + ": " + error.getMessage(), error);
        }
        String line;
        try {
            line = program.firstLine();
        } catch (InterruptedException error) {
            program.abandon();
            Thread.currentThread().interrupt();
            throw new LockException("lock " + name + ": interrupted while leasehold acquired it", error);
        }
        Map<String, String> fields = Program.fields(line);
        Optional<Long> token = Program.integer(fields.get("token")).filter(number -> number > 0);
        if (name.equals(Program.text(fields.get("lock"))) && token.isPresent() && !fields.containsKey("exit_code")) {
            return Optional.of(new HeldLock(name, token.get(), program, atMost));
        }
        program.abandon();
        Program.Result result = program.close();
        if (!line.isEmpty() && !result.reported()) {
            throw new LockException("lock " + name + ": leasehold printed an unexpected line: " + line.strip());
        }
        if (result.code() == NOT_ACQUIRED) {
            return Optional.empty();
        }
        String why = Program.text(fields.get("error"));
        throw new LockException("lock " + name + ": " + (why != null ? why : "leasehold exited with code " + result.code()));
    }

    /**
     * Returns the name of the lock.
     *
     * @return the name
     */
    public String name() {
        return name;
    }

    /**
     * Returns the fencing token. It grows with every acquisition of the lock, so the receiver of an
     * effect can refuse an old token.
     *
     * @return the token
     */
    public long token() {
        return token;
    }

    /**
     * Returns whether this JVM still holds the lock, as far as the program has reported.
     *
     * @return false if the lock was lost or unlocked, or {@code lockAtMostFor} has passed
     */
    public boolean isValid() {
        synchronized (this) {
            if (end == null && atMostUntil - System.nanoTime() <= 0) {
                end(End.EXPIRED);
                // The work may still run, as with every provider.
                program.closeInput();
                LOGGER.warn("lock {}: released, because lockAtMostFor has passed; its work still runs", name);
            } else if (end == null && program.hasEnded()) {
                end(End.LOST);
                LOGGER.error("lock {}: lost; its work still runs, and another process may acquire the lock", name);
            }
            return end == null;
        }
    }

    /**
     * Throws unless this JVM still holds the lock. Call it before each effect.
     *
     * @throws LockException if the lock was lost or unlocked, or {@code lockAtMostFor} has passed
     */
    public synchronized void check() {
        if (!isValid()) {
            throw new LockException("lock " + name + " " + end.text);
        }
    }

    /**
     * Returns a stage that completes when the lock is lost or {@code lockAtMostFor} has passed, for
     * work that must be cancelled. It does not complete when the lock is unlocked.
     *
     * @return the stage; its actions run in another thread
     */
    public CompletionStage<Void> lost() {
        return lost.minimalCompletionStage();
    }

    boolean isOf(Thread other) {
        return thread == other;
    }

    /** Replaces the maximum duration, and prolongs the minimum duration. Returns false if the lock has ended. */
    boolean extend(Duration atMost, Duration atLeast) {
        synchronized (this) {
            if (isValid()) {
                expiry.cancel(false);
                expireAfter(atMost);
                atLeastUntil = System.nanoTime() + nanos(atLeast);
                return true;
            }
        }
        program.close();
        return false;
    }

    /** Releases the lock, at once or after the minimum duration of an extension. */
    void release() {
        synchronized (this) {
            if (isValid()) {
                end(End.UNLOCKED);
                long remaining = atLeastUntil - System.nanoTime();
                if (remaining > 0) {
                    Program.later(program::closeInput, remaining);
                    return;
                }
            } else if (end == End.LOST) {
                return;
            }
        }
        if (!program.close().confirmsRelease()) {
            LOGGER.error("lock {}: leasehold did not confirm the release, so it may be held until it expires", name);
        }
    }

    private void end(End reason) {
        end = reason;
        expiry.cancel(false);
        if (reason != End.UNLOCKED) {
            // Asynchronously, because the actions may block.
            lost.completeAsync(() -> null);
        }
    }

    private void expireAfter(Duration atMost) {
        atMostUntil = System.nanoTime() + nanos(atMost);
        expiry = Program.later(this::isValid, nanos(atMost));
    }

    private static long nanos(Duration duration) {
        return duration.compareTo(LONGEST) < 0 ? duration.toNanos() : LONGEST.toNanos();
    }
}
