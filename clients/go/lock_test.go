package leasehold

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func of(t *testing.T, name string) Lock {
	return Lock{Name: name, Program: setting(t, "PROGRAM"), Arguments: []string{store(t)}}
}

func acquire(t *testing.T, lock Lock) *HeldLock {
	t.Helper()
	held, err := lock.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { held.Release() })
	return held
}

func refused(t *testing.T, lock Lock) {
	t.Helper()
	_, err := lock.Acquire(context.Background())
	if !errors.Is(err, ErrLockNotAcquired) || !strings.Contains(err.Error(), "held by ") {
		t.Fatal(err)
	}
}

// refusedAfterAWait asserts that a wait for a lock ends without the lock. On a busy machine,
// MongoDB may not answer within the first wait.
func refusedAfterAWait(t *testing.T, lock Lock) {
	t.Helper()
	var err error
	for lock.Wait = 500 * time.Millisecond; lock.Wait < long; lock.Wait *= 2 {
		if _, err = lock.Acquire(context.Background()); errors.Is(err, ErrLockNotAcquired) {
			return
		}
	}
	t.Fatal(err)
}

func waiters(t *testing.T, name string) int {
	t.Helper()
	var locks []struct {
		Lock  string
		Queue []any
	}
	if err := json.Unmarshal(run(t, "locks", store(t), "--output=json"), &locks); err != nil {
		t.Fatal(err)
	}
	for _, lock := range locks {
		if lock.Lock == name {
			return len(lock.Queue)
		}
	}
	return 0
}

// program returns the process id of the program that holds a lock.
func program(t *testing.T, lock string) int {
	t.Helper()
	for _, path := range must(filepath.Glob("/proc/[0-9]*/cmdline")) {
		words, _ := os.ReadFile(path) // Empty if the process has exited.
		if strings.HasPrefix(string(words), setting(t, "PROGRAM")+"\x00lock\x00"+lock+"\x00") {
			return must(strconv.Atoi(strings.Split(path, "/")[2]))
		}
	}
	t.Fatal("no process holds ", lock)
	return 0
}

func breakLock(t *testing.T, name string) {
	t.Helper()
	run(t, "locks", "break", name, "--force", "--yes", store(t))
}

func TestALockIsHeldUntilTheWorkEnds(t *testing.T) {
	lock := of(t, "go-work")
	noWait := lock
	noWait.NoWait = true
	var after *HeldLock
	err := lock.Do(context.Background(), func(ctx context.Context, held *HeldLock) error {
		after = held
		if _, hasSlot := held.Slot(); held.Token() != 1 || hasSlot || held.Check() != nil {
			t.Fatal(held.Token(), held.Check())
		}
		refused(t, noWait)
		refusedAfterAWait(t, lock)
		return errors.Join(held.Check(), ctx.Err())
	})
	if err != nil {
		t.Fatal(err)
	}
	ended(t, after, ErrReleased)
	if again := acquire(t, noWait); again.Token() != 2 {
		t.Fatal(again.Token())
	}
}

func TestAnErrorAndAPanicReleaseIt(t *testing.T) {
	lock, failure := of(t, "go-failing"), errors.New("failure")
	err := lock.Do(context.Background(), func(context.Context, *HeldLock) error { return failure })
	if !errors.Is(err, failure) || errors.Is(err, ErrLockLost) {
		t.Fatal(err)
	}
	lock.NoWait = true
	func() {
		defer func() { recover() }()
		lock.Do(context.Background(), func(context.Context, *HeldLock) error { panic("failure") })
	}()
	if held := acquire(t, lock); held.Token() != 3 {
		t.Fatal(held.Token())
	}
}

func TestAWaiterGetsIt(t *testing.T) {
	lock := of(t, "go-waiter")
	held := acquire(t, lock)
	lock.Wait = long
	got := make(chan error)
	go func() {
		got <- lock.Do(context.Background(), func(_ context.Context, second *HeldLock) error {
			if second.Token() != 2 {
				return fmt.Errorf("token %d", second.Token())
			}
			return nil
		})
	}()
	eventually(t, "it waits", func() bool { return waiters(t, lock.Name) == 1 })
	if err := errors.Join(held.Release(), held.Release(), <-got); err != nil {
		t.Fatal(err)
	}
}

func TestSlotsHaveNumbers(t *testing.T) {
	lock := of(t, "go-slots")
	lock.Slots = 2
	one, hasOne := acquire(t, lock).Slot()
	other, hasOther := acquire(t, lock).Slot()
	if !hasOne || !hasOther || one+other != 1 || one*other != 0 {
		t.Fatal(one, hasOne, other, hasOther)
	}
	lock.NoWait = true
	refused(t, lock)
}

func TestReadersShareIt(t *testing.T) {
	writer := of(t, "go-shared")
	writer.NoWait = true
	reader := writer
	reader.Shared = true
	acquire(t, reader)
	acquire(t, reader)
	refused(t, writer)
}

func TestABrokenLockIsLost(t *testing.T) {
	lock := of(t, "go-broken")
	err := lock.Do(context.Background(), func(ctx context.Context, held *HeldLock) error {
		breakLock(t, lock.Name)
		ended(t, held, ErrLockLost)
		if cause := context.Cause(ctx); !errors.Is(cause, ErrLockLost) {
			t.Fatal(cause)
		}
		return nil
	})
	if !errors.Is(err, ErrLockLost) || !strings.Contains(err.Error(), "76") {
		t.Fatal(err)
	}
}

func TestAKilledProgramHasLostItsLock(t *testing.T) {
	lock := of(t, "go-killed-lock")
	held := acquire(t, lock)
	syscall.Kill(program(t, lock.Name), syscall.SIGKILL)
	ended(t, held, ErrLockLost)
	for range [2]struct{}{} {
		if err := held.Release(); !errors.Is(err, ErrLockLost) {
			t.Fatal(err)
		}
	}
}

func TestALossIsAnErrorOfTheWorkThatReleasesItself(t *testing.T) {
	lock := printing(t, `echo '{"lock":"it","token":1}'; cat > /dev/null; exit 76`+"\n")
	err := lock.Do(context.Background(), func(_ context.Context, held *HeldLock) error {
		held.Release()
		return nil
	})
	if !errors.Is(err, ErrLockLost) {
		t.Fatal(err)
	}
}

func TestALossThatNoCheckNoticedIsAnErrorOfTheRelease(t *testing.T) {
	lock := of(t, "go-unnoticed")
	failure := errors.New("failure")
	err := lock.Do(context.Background(), func(_ context.Context, held *HeldLock) error {
		breakLock(t, lock.Name)
		<-held.process.exited
		return failure
	})
	if !errors.Is(err, ErrLockLost) || !errors.Is(err, failure) {
		t.Fatal(err)
	}
}

func TestAStopSignalDoesNotTakeItFromTheWork(t *testing.T) {
	for _, stop := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(stop.String(), func(t *testing.T) { stopSignal(t, stop) })
	}
}

func stopSignal(t *testing.T, stop syscall.Signal) {
	lock := of(t, "go-signalled")
	log, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	stderr := os.Stderr
	os.Stderr = theirs
	held := acquire(t, lock)
	os.Stderr = stderr
	theirs.Close()
	syscall.Kill(program(t, lock.Name), stop)
	for lines := bufio.NewScanner(log); ; {
		if !lines.Scan() {
			t.Fatal("it has exited")
		}
		if strings.Contains(lines.Text(), "stop signal received") {
			break
		}
	}
	go io.Copy(io.Discard, log)
	lock.NoWait = true
	refused(t, lock)
	if err := errors.Join(held.Check(), held.Release()); err != nil {
		t.Fatal(err)
	}
}

func TestAFrozenProgramIsKilledAtTheRelease(t *testing.T) {
	defer func(before time.Duration) { releaseMax = before }(releaseMax)
	releaseMax = 200 * time.Millisecond
	lock := of(t, "go-frozen-lock")
	held := acquire(t, lock)
	syscall.Kill(program(t, lock.Name), syscall.SIGSTOP)
	if err := held.Release(); !errors.Is(err, ErrLockLost) {
		t.Fatal(err)
	}
}

func TestACancelledWaitLeavesTheQueue(t *testing.T) {
	lock := of(t, "go-cancelled")
	held := acquire(t, lock)
	lock.Wait = long
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	got := make(chan error)
	go func() {
		_, err := lock.Acquire(ctx)
		got <- err
	}()
	eventually(t, "it waits", func() bool { return waiters(t, lock.Name) == 1 })
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if count := waiters(t, lock.Name); count != 0 {
		t.Fatal(count)
	}
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Acquire(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestAWaiterEndsWithItsParent(t *testing.T) {
	lock := of(t, "go-orphan")
	if os.Getenv("CLIENT_TEST_ORPHAN") != "" {
		acquire(t, lock) // The test kills the first process, which is the waiter's parent.
		return
	}
	acquire(t, lock)
	parent := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	parent.Env = append(os.Environ(), "CLIENT_TEST_ORPHAN=1")
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer parent.Wait()
	defer parent.Process.Kill()
	eventually(t, "it waits", func() bool { return waiters(t, lock.Name) == 1 })
	parent.Process.Kill()
	eventually(t, "it has left the queue", func() bool { return waiters(t, lock.Name) == 0 })
}

func TestANegativeWaitIsNoWait(t *testing.T) {
	lock := of(t, "go-negative-wait")
	acquire(t, lock)
	lock.Wait = -time.Second
	ctx, cancel := context.WithTimeout(context.Background(), long/2)
	defer cancel()
	if _, err := lock.Acquire(ctx); !errors.Is(err, ErrLockNotAcquired) {
		t.Fatal(err)
	}
}

func TestALongWaitIsAccepted(t *testing.T) {
	lock := of(t, "go-long-wait")
	// The program accepts at most 31 days.
	const longest = 31 * 24 * time.Hour
	for _, lock.Wait = range []time.Duration{longest, longest + time.Nanosecond, longest + time.Millisecond, math.MaxInt64} {
		held, err := lock.Acquire(context.Background())
		if err == nil {
			err = held.Release()
		}
		if err != nil {
			t.Error(lock.Wait, err)
		}
	}
}

func TestANegativeNumberOfSlotsIsRefused(t *testing.T) {
	lock := of(t, "go-negative-slots")
	lock.Slots = -1
	held, err := lock.Acquire(context.Background())
	if err == nil {
		held.Release()
	}
	if err == nil || !strings.Contains(err.Error(), "64") {
		t.Fatal(err)
	}
}

func TestACancelledContextEndsTheWorkAndTheReleaseFreesTheLock(t *testing.T) {
	lock := of(t, "go-cancelled-work")
	ctx, cancel := context.WithCancel(context.Background())
	err := lock.Do(ctx, func(ctx context.Context, held *HeldLock) error {
		cancel()
		<-ctx.Done()
		noWait := lock
		noWait.NoWait = true
		refused(t, noWait)
		return held.Check()
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrLockLost) {
		t.Fatal(err)
	}
	lock.NoWait = true
	acquire(t, lock)
}

// printing returns a lock whose program is a shell script.
func printing(t *testing.T, script string) Lock {
	t.Helper()
	path := filepath.Join(t.TempDir(), "leasehold")
	// No process can execute a file that is open for writing, and a child of another test may still
	// have this file open.
	write := exec.Command("/bin/sh", "-c", `printf '%s' "$1" > "$0" && chmod 700 "$0"`, path, "#!/bin/sh\n"+script)
	if err := write.Run(); err != nil {
		t.Fatal(err)
	}
	return Lock{Name: "it", Program: path}
}

func TestAnUnexpectedLineIsNotALock(t *testing.T) {
	lock := Lock{Name: "it"}
	for _, line := range []string{
		"", "nonsense\n", "[]\n", "null\n", `{"lock":"other","token":1}` + "\n", `{"lock":"it"}` + "\n",
		`{"lock":"it","token":0}` + "\n", `{"lock":"it","token":true}` + "\n", `{"lock":"it","token":"1"}` + "\n",
		`{"lock":"it","token":1,"slot":0}` + "\n", `{"lock":"it","token":1,"slot":"0"}` + "\n",
		`{"LOCK":"it","token":1}` + "\n", `{"lock":"it","token":1}`,
	} {
		if _, err := lock.parse([]byte(line)); err == nil {
			t.Fatal(line)
		}
	}
	line := []byte(`{"lock":"it","token":1}` + "\n")
	if _, err := lock.parse(line); err != nil {
		t.Fatal(err)
	}
	lock.Slots = 2
	if _, err := lock.parse(line); err == nil {
		t.Fatal("a slot is missing")
	}
}

func TestAProgramThatPrintsSomethingElseIsNotALock(t *testing.T) {
	for _, script := range []string{
		"echo nonsense; cat >/dev/null\n",
		"printf '{\"lock\":\"it\",\"token\":1}'\n",
		"printf '%05000d' 1; exec sleep 1000\n",
	} {
		if _, err := printing(t, script).Acquire(context.Background()); err == nil || !strings.Contains(err.Error(), "unexpected") {
			t.Fatal(script, err)
		}
	}
}

func TestAProgramThatFailsIsReportedWithItsCode(t *testing.T) {
	lock := of(t, "it")
	lock.Arguments = []string{"--no-such-flag"}
	_, err := lock.Acquire(context.Background())
	if err == nil || errors.Is(err, ErrLockNotAcquired) || !strings.Contains(err.Error(), "64") {
		t.Fatal(err)
	}
	if _, err := (Lock{Name: "it", Program: "/nonexistent"}).Acquire(context.Background()); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}
