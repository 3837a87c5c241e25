package leasehold

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// again returns a command that runs only the calling test, in another process.
func again(t *testing.T, role string) *exec.Cmd {
	t.Helper()
	command := exec.Command(os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
	command.Env = append(os.Environ(), "CLIENT_TEST_ROLE="+role)
	return command
}

// role returns the argument of [again]; empty in the first process.
func role() string {
	return os.Getenv("CLIENT_TEST_ROLE")
}

func free(t *testing.T, lock Lock) bool {
	t.Helper()
	lock.NoWait = true
	held, err := lock.Acquire(context.Background())
	if err == nil {
		err = held.Release()
	} else if errors.Is(err, ErrLockNotAcquired) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	return true
}

// drop acquires a lock, and returns the result of keep without the lock.
func drop[T any](t *testing.T, lock Lock, keep func(*HeldLock) T) T {
	t.Helper()
	held, err := lock.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return keep(held)
}

func TestALockThatNobodyRefersToIsReleased(t *testing.T) {
	lock := of(t, "go-dropped")
	if token := drop(t, lock, (*HeldLock).Token); token != 1 || free(t, lock) {
		t.Fatal(token)
	}
	eventually(t, "it is released", func() bool {
		runtime.GC()
		return free(t, lock)
	})
}

func TestALockWhoseContextIsUsedIsKept(t *testing.T) {
	// Each use leaves only a goroutine that waits for the end of the context.
	uses := map[string]func(context.Context, func()){
		"goroutine": func(ctx context.Context, lost func()) {
			done := ctx.Done()
			go func() { <-done; lost() }()
		},
		"function": func(ctx context.Context, lost func()) { context.AfterFunc(ctx, lost) },
		"derived": func(ctx context.Context, lost func()) {
			derived, cancel := context.WithTimeout(ctx, time.Hour)
			done := derived.Done()
			go func() { defer cancel(); <-done; lost() }()
		},
	}
	lost := make(chan string, len(uses))
	for name, use := range uses {
		name := name
		drop(t, of(t, "go-only-"+name), func(held *HeldLock) any {
			use(held.Context(), func() { lost <- name })
			return nil
		})
	}
	// A lock that is dropped later is collected after these locks.
	other := of(t, "go-dropped-after")
	drop(t, other, (*HeldLock).Token)
	eventually(t, "the other is released", func() bool {
		runtime.GC()
		return free(t, other)
	})
	for name := range uses {
		lock := of(t, "go-only-"+name)
		if free(t, lock) || len(lost) > 0 {
			t.Fatal(name, " is released")
		}
		syscall.Kill(program(t, lock.Name), syscall.SIGKILL)
		select {
		case ended := <-lost:
			if ended != name {
				t.Fatal(ended, name)
			}
		case <-time.After(long):
			t.Fatal(name, " is not notified")
		}
	}
}

func TestNothingKeepsALockAfterItsEnd(t *testing.T) {
	lock := of(t, "go-kept")
	for _, end := range []func(*HeldLock){
		func(held *HeldLock) { held.Release() },
		func(held *HeldLock) { syscall.Kill(program(t, lock.Name), syscall.SIGKILL) },
	} {
		collected := make(chan struct{})
		drop(t, lock, func(held *HeldLock) any {
			// Only the held lock refers to slots, so slots is collected once nothing keeps the held lock,
			// not even its context.
			slots := new([4]int)
			held.holder.slot = &slots[0]
			runtime.SetFinalizer(slots, func(*[4]int) { close(collected) })
			ctx := held.Context()
			end(held)
			<-ctx.Done()
			return nil
		})
		eventually(t, "it is collected", func() bool {
			runtime.GC()
			select {
			case <-collected:
				return true
			default:
				return false
			}
		})
	}
}

// late is a context that is cancelled at the moment when the lock is acquired.
type late struct {
	context.Context
	cancel context.CancelFunc
	held   string // A file that exists once the lock is held.
}

func (l late) Done() <-chan struct{} {
	for l.Err() == nil {
		if _, err := os.Stat(l.held); err == nil {
			l.cancel()
		}
		runtime.Gosched()
	}
	return l.Context.Done()
}

func TestACancelledAcquireReturnsNoLock(t *testing.T) {
	directory := t.TempDir()
	held, released := filepath.Join(directory, "held"), filepath.Join(directory, "released")
	lock := printing(t, `
		echo '{"lock":"it","token":1}'
		trap '' TERM
		: > `+held+`
		cat > /dev/null
		echo '{"lock":"it","exit_code":0}'
		: > `+released+"\n")
	for range [30]struct{}{} {
		ctx, cancel := context.WithCancel(context.Background())
		got, err := lock.Acquire(late{ctx, cancel, held})
		if got != nil || !errors.Is(err, context.Canceled) {
			t.Fatal(got, err)
		}
		if err := errors.Join(os.Remove(released), os.Remove(held)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCtrlCThatIsHandledLeavesTheLock(t *testing.T) {
	lock := of(t, "go-interrupt")
	lock.Arguments = append(lock.Arguments, "--workload-stop-grace=1ms")
	if role() == "holder" {
		interrupts := make(chan os.Signal, 1)
		signal.Notify(interrupts, syscall.SIGINT)
		held := acquire(t, lock)
		os.Stdout.WriteString("held\n")
		<-interrupts
		// The script takes longer than leasehold would need to exit without a release.
		if free(t, lock) {
			t.Fatal("it is released")
		}
		if err := errors.Join(held.Check(), held.Release()); err != nil {
			t.Fatal(err)
		}
		return
	}
	command := again(t, "holder")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output := must(command.StdoutPipe())
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	text := ""
	for part := make([]byte, 4096); !strings.Contains(text, "held\n"); {
		length, err := output.Read(part)
		if err != nil {
			t.Fatal(text, err)
		}
		text += string(part[:length])
	}
	pid := program(t, lock.Name)
	if group := must(syscall.Getpgid(pid)); group == command.Process.Pid {
		t.Error("leasehold is in the process group of the program")
	}
	if err := syscall.Kill(-command.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for part := make([]byte, 4096); ; {
		length, err := output.Read(part)
		if text += string(part[:length]); err != nil {
			break
		}
	}
	if err := command.Wait(); err != nil {
		t.Fatal(err, text)
	}
}

func TestTheExitCodeIsKnownWithoutSIGCHLD(t *testing.T) {
	lock, own := of(t, "go-sigchld"), of(t, "go-sigchld-own")
	switch role() {
	case "":
		acquire(t, lock)
		for _, role := range []string{"ignored", "reaped"} {
			if output, err := again(t, role).CombinedOutput(); err != nil {
				t.Error(role, err, string(output))
			}
		}
		return
	case "ignored":
		signal.Ignore(syscall.SIGCHLD)
	case "reaped":
		go func() {
			for {
				if _, err := syscall.Wait4(-1, nil, 0, nil); err != nil {
					runtime.Gosched()
				}
			}
		}()
	}
	if held, err := own.Acquire(context.Background()); err != nil || held.Release() != nil {
		t.Fatal(held, err)
	}
	lock.NoWait = true
	refused(t, lock)
}

func descriptors(t *testing.T) int {
	t.Helper()
	return len(must(os.ReadDir("/proc/self/fd"))) - 1 // The directory's own descriptor does not count.
}

// fill opens every descriptor below the highest open descriptor, and returns the number of open
// descriptors.
func fill(t *testing.T) uint64 {
	t.Helper()
	for {
		file := must(os.Open(os.DevNull))
		t.Cleanup(func() { file.Close() })
		if number := file.Fd(); int(number)+1 == descriptors(t) {
			return uint64(number) + 1
		}
	}
}

func TestWithoutDescriptorsNothingIsLeftAndTheOtherLockIsHeld(t *testing.T) {
	// The garbage collector is turned off, because it would close a leaked descriptor.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	lock, other := of(t, "go-descriptors"), of(t, "go-descriptors-other")
	other.NoWait = true
	acquire(t, other).Release() // Go has now opened the descriptors that it opens only once.
	held := acquire(t, lock)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)
	count := fill(t)
	failed := 0
	for more := uint64(0); more < 12; more++ {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: count + more, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		got, err := other.Acquire(context.Background())
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			failed++
		} else if err := got.Release(); err != nil {
			t.Fatal(err)
		}
		if left := descriptors(t) - int(count); left != 0 {
			t.Fatal("with ", more, " descriptors: ", left, " are left: ", err)
		}
	}
	if failed < 6 {
		t.Fatal("only ", failed, " failed")
	}
	if err := held.Check(); err != nil || !free(t, other) {
		t.Fatal(err)
	}
}

func TestTheEndOfTheThreadThatAcquiredItLeavesTheLock(t *testing.T) {
	lock := of(t, "go-thread")
	got := make(chan *HeldLock)
	go func() {
		runtime.LockOSThread() // The thread ends with this goroutine.
		held, err := lock.Acquire(context.Background())
		if err != nil {
			t.Error(err)
		}
		got <- held
	}()
	held := <-got
	if held == nil {
		return
	}
	if free(t, lock) || held.Check() != nil {
		t.Fatal(held.Check())
	}
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
}

func TestNoGoroutineIsLeft(t *testing.T) {
	lock := of(t, "go-goroutines")
	ctx, end := context.WithCancel(context.Background())
	defer end()
	before := runtime.NumGoroutine()
	for range [3]struct{}{} {
		held, err := lock.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if free(t, lock) {
			t.Fatal("not held")
		}
		waiting, cancel := context.WithCancel(ctx)
		got := make(chan error)
		go func() {
			_, err := lock.Acquire(waiting)
			got <- err
		}()
		eventually(t, "it waits", func() bool { return waiters(t, lock.Name) == 1 })
		cancel()
		if err := errors.Join(<-got, held.Release()); !errors.Is(err, context.Canceled) || errors.Is(err, ErrLockLost) {
			t.Fatal(err)
		}
	}
	eventually(t, "all have ended", func() bool { return runtime.NumGoroutine() <= before })
}

func TestAReleaseOfAProgramThatLeavesItsOutputOpenEnds(t *testing.T) {
	defer func(before time.Duration) { releaseMax = before }(releaseMax)
	releaseMax = 200 * time.Millisecond
	lock := printing(t, `sleep 1000 & echo $! > "$0.pid"; echo '{"lock":"it","token":1}'; wait`+"\n")
	held := acquire(t, lock)
	t.Cleanup(func() {
		pid := strings.TrimSpace(string(must(os.ReadFile(lock.Program + ".pid"))))
		exec.Command("kill", pid).Run()
	})
	if err := held.Release(); !errors.Is(err, ErrLockLost) {
		t.Fatal(err)
	}
}

func TestAReleaseThatNobodyReportsIsALoss(t *testing.T) {
	held := acquire(t, printing(t, `echo '{"lock":"it","token":1}'; cat > /dev/null; exit 0`+"\n"))
	if err := held.Release(); !errors.Is(err, ErrLockLost) || !strings.Contains(err.Error(), "did not confirm") {
		t.Fatal(err)
	}
}

func TestTheEndOfTheOutputIsTheEndOfTheLock(t *testing.T) {
	defer func(before time.Duration) { releaseMax = before }(releaseMax)
	releaseMax = 200 * time.Millisecond
	held := acquire(t, printing(t, `echo '{"lock":"it","token":1}'; exec sleep 1000 >&-`+"\n"))
	ended(t, held, ErrLockLost)
	if err := held.Release(); !errors.Is(err, ErrLockLost) {
		t.Fatal(err)
	}
}

func TestAProgramThatSurvivesSIGKILLDoesNotDelayTheRelease(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run a program as another user")
	}
	if role() == "" {
		// The process must not be able to signal processes of other users.
		command := again(t, "powerless")
		command.Args = append([]string{"setpriv", "--bounding-set=-kill", "--inh-caps=-kill", command.Path}, command.Args[1:]...)
		command.Path = must(exec.LookPath("setpriv"))
		output, err := command.CombinedOutput()
		if _, pid, found := strings.Cut(string(output), "survivor "); found {
			pid, _, _ = strings.Cut(pid, "\n")
			err = errors.Join(err, syscall.Kill(must(strconv.Atoi(pid)), syscall.SIGKILL))
		}
		if err != nil {
			t.Fatal(string(output), err)
		}
		return
	}
	releaseMax = 200 * time.Millisecond
	// The program gets no standard error. The first process would wait until every copy of its own
	// standard error is closed.
	lock := printing(t, `exec setpriv --reuid=65534 --clear-groups sh -c "$(cat "$0.sh")" 2>/dev/null`+"\n")
	stubborn := `echo '{"lock":"it","token":1}'; kill -STOP $$`
	if err := os.WriteFile(lock.Program+".sh", []byte(stubborn), 0o644); err != nil {
		t.Fatal(err)
	}
	held, err := lock.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	pid := held.process.command.Process.Pid
	fmt.Printf("survivor %d\n", pid)
	released := make(chan error, 1)
	go func() { released <- held.Release() }()
	select {
	case err := <-released:
		if !errors.Is(err, ErrLockLost) || !strings.Contains(err.Error(), "did not confirm") {
			t.Fatal(err)
		}
	case <-time.After(15 * time.Second):
		t.Fatal("the release does not end")
	}
	if err := syscall.Kill(pid, 0); err != syscall.EPERM {
		t.Fatal("it has not survived: ", err)
	}
}

func TestACopyOfTheInputDoesNotDelayTheRelease(t *testing.T) {
	held := acquire(t, of(t, "go-copied"))
	// The copy simulates a descriptor that a C library's fork would leave open.
	connection := must(held.process.input.SyscallConn())
	err := connection.Control(func(descriptor uintptr) {
		copied := must(syscall.Dup(int(descriptor)))
		t.Cleanup(func() { syscall.Close(copied) })
	})
	if err := errors.Join(err, held.Release()); err != nil {
		t.Fatal(err)
	}
}
