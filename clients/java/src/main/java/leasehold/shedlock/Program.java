package leasehold.shedlock;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A running {@code leasehold lock NAME}, which holds the lock until its standard input closes. */
final class Program {
    /** The program waits for MongoDB for at most 5 s. Tests change the limit. */
    static volatile Duration releaseMax = Duration.ofSeconds(10);

    /** Maximum time until the exit after SIGKILL, and until the end of the output after the exit. */
    private static final Duration EXIT_MAX = Duration.ofSeconds(1);
    private static final int LINE_MAX = 4096;
    /** Exit codes that confirm a release: success, or a stop signal. */
    private static final Set<Integer> RELEASED = Set.of(0, 128 + 1, 128 + 2, 128 + 3, 128 + 15);

    private static final String TEXT = "\"[^\"\\\\]*+(?:\\\\.[^\"\\\\]*+)*+\"";
    private static final Pattern FIELD =
            Pattern.compile("[{,]\\s*(" + TEXT + ")\\s*:\\s*(" + TEXT + "|[-+.\\w]++)\\s*(?=[,}])");

    private static final ScheduledThreadPoolExecutor TIMER = new ScheduledThreadPoolExecutor(1, task -> daemon(task, "leasehold-timer"));

    static {
        TIMER.setRemoveOnCancelPolicy(true);
    }

    /**
     * The exit code of a program (-1 if it is unknown), and whether the last line reports it. Only the
     * last line confirms a release, because another program may run leasehold.
     */
    record Result(int code, boolean reported) {
        boolean confirmsRelease() {
            return reported && RELEASED.contains(code);
        }
    }

    private final String lock;
    private final Process process;
    private final CompletableFuture<String> first = new CompletableFuture<>();
    /** Completes with the last line at the end of the output. */
    private final CompletableFuture<String> output = new CompletableFuture<>();

    private Program(String lock, Process process) {
        this.lock = lock;
        this.process = process;
    }

    static Program start(String lock, List<String> command) throws IOException {
        Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        Program program = new Program(lock, process);
        daemon(program::read, "leasehold-lock-" + lock).start();
        return program;
    }

    /** Runs a task that does not block. */
    static ScheduledFuture<?> later(Runnable task, long nanos) {
        return TIMER.schedule(task, nanos, TimeUnit.NANOSECONDS);
    }

    /** Returns the first line, which is incomplete if the output ends or the line is too long. */
    String firstLine() throws InterruptedException {
        try {
            return first.get();
        } catch (ExecutionException error) {
            throw new IllegalStateException(error);
        }
    }

    boolean hasEnded() {
        return output.isDone() || !process.isAlive();
    }

    /** Completes at the exit or at the end of the output, whichever comes first. */
    CompletableFuture<Object> ended() {
        return CompletableFuture.anyOf(output, process.onExit());
    }

    /** Closes the input, so that the program releases the lock. Kills a program that does not exit. */
    void closeInput() {
        try {
            process.getOutputStream().close();
        } catch (IOException error) {
            // The program has exited.
        }
        ScheduledFuture<?> kill = later(process::destroyForcibly, releaseMax.toNanos());
        process.onExit().thenRun(() -> kill.cancel(false));
    }

    /** Closes the input and waits for the exit, even if the thread is interrupted. */
    Result close() {
        closeInput();
        // Unlike get(), join() does not end when the thread is interrupted.
        boolean exited = limited(process.onExit().thenApply(done -> true), releaseMax.plus(EXIT_MAX), false).join();
        // A process that the program has left behind may keep the output open.
        Map<String, String> report = fields(limited(output, exited ? EXIT_MAX : Duration.ZERO, "").join());
        Optional<Long> code = integer(report.get("exit_code")).filter(found -> lock.equals(text(report.get("lock"))));
        int unreported = exited ? process.exitValue() : -1;
        return new Result(code.map(Long::intValue).orElse(unreported), code.isPresent());
    }

    private static <T> CompletableFuture<T> limited(CompletableFuture<T> future, Duration limit, T otherwise) {
        return future.copy().completeOnTimeout(otherwise, limit.toNanos(), TimeUnit.NANOSECONDS);
    }

    /** Ends a program that does not hold the lock. The program may not be leasehold. */
    void abandon() {
        process.destroy();
        closeInput();
    }

    /** Reads the output until its end, so that the program never blocks. */
    private void read() {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        String last = "";
        try (InputStream input = process.getInputStream()) {
            for (int next = input.read(); next >= 0; next = input.read()) {
                line.write(next);
                if (next == '\n' || line.size() >= LINE_MAX) {
                    last = line.toString(StandardCharsets.UTF_8);
                    first.complete(last);
                    line.reset();
                }
            }
        } catch (IOException error) {
            // The output has ended.
        }
        last = line.size() > 0 ? line.toString(StandardCharsets.UTF_8) : last;
        first.complete(last);
        output.complete(last);
    }

    /** Returns the values in a complete line with a flat JSON object, as they are written; none for other text. */
    static Map<String, String> fields(String line) {
        Map<String, String> fields = new HashMap<>();
        Matcher field = FIELD.matcher(line);
        int end = 0;
        while (field.find(end) && field.start() == end) {
            fields.put(text(field.group(1)), field.group(2));
            end = field.end();
        }
        return line.substring(end).equals("}\n") ? fields : Map.of();
    }

    /** Returns the text of a JSON string, and null for another value. */
    static String text(String value) {
        if (value == null || !value.startsWith("\"")) {
            return null;
        }
        String text = value.substring(1, value.length() - 1);
        try {
            return text.translateEscapes();
        } catch (IllegalArgumentException error) {
            return text; // Java has two escapes less than JSON.
        }
    }

    static Optional<Long> integer(String value) {
        try {
            return Optional.of(Long.valueOf(value));
        } catch (NumberFormatException error) {
            return Optional.empty();
        }
    }

    private static Thread daemon(Runnable task, String name) {
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        return thread;
    }
}
