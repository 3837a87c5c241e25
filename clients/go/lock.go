package leasehold

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	// ErrLockNotAcquired is the error if another process held the lock and the wait was over.
	ErrLockNotAcquired = errors.New("leasehold: the lock is held by another process")
	// ErrLockLost is the error of a lock that was lost. Its work must stop: another process may
	// hold the lock.
	ErrLockLost = errors.New("leasehold: the lock was lost")
	// ErrReleased is the error of a lock that was released.
	ErrReleased = errors.New("leasehold: the lock was released")
)

const (
	codeNotAcquired = 75
	lineBytesMax    = 4096
)

// releaseMax bounds the wait for the program, which waits for MongoDB for at most 5 s.
var releaseMax = 10 * time.Second

// Lock describes a lock to acquire, which the program leasehold holds until its standard input
// closes.
type Lock struct {
	// Name is the name of the lock.
	Name string
	// Wait is the maximum wait for other holders; zero for no limit, negative for no wait.
	Wait time.Duration
	// NoWait is true to not wait for other holders.
	NoWait bool
	// Shared is true for a shared lock.
	Shared bool
	// Slots is the number of slots, of which one is acquired; zero for a lock without slots.
	Slots int
	// Arguments are further flags of leasehold lock, such as --mongodb-uri-file=PATH.
	Arguments []string
	// Program is the path of leasehold; "leasehold" if it is empty.
	Program string
}

// HeldLock is a lock that this process holds. Once it is lost or released, it stays so.
type HeldLock struct {
	name   string
	token  int64
	slot   *int
	input  io.Closer
	exited chan struct{} // Closed after code was set.
	code   int
	kill   func()
	over   atomic.Bool // Release was called.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// Do acquires the lock, calls work, and releases the lock. The context of work is cancelled if the
// lock is lost. If it was lost, the result has [ErrLockLost], also if work returned nil.
func (l Lock) Do(ctx context.Context, work func(context.Context, *HeldLock) error) (err error) {
	held, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	// Also if work panics.
	defer func() { err = errors.Join(err, held.Release()) }()
	return work(held.Context(), held)
}

// Acquire waits for the lock. The caller must call [HeldLock.Release]. The error is
// [ErrLockNotAcquired] if another process holds the lock, and another one if leasehold fails, whose
// messages are on standard error. If ctx is cancelled, the wait ends. A lock that is held then stays
// held until its release, but its context is cancelled.
func (l Lock) Acquire(ctx context.Context) (*HeldLock, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	command := l.command()
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	held := &HeldLock{
		name: l.Name, input: input, exited: make(chan struct{}),
		kill: func() { command.Process.Kill() },
	}
	if err := start(command, held.exited); err != nil {
		return nil, err
	}
	first := make(chan []byte, 1)
	go func() {
		reader := bufio.NewReaderSize(output, lineBytesMax)
		line, _ := reader.ReadSlice('\n')
		first <- append([]byte(nil), line...)
		// The end of its output is the end of the process.
		io.Copy(io.Discard, reader)
		command.Wait()
		held.code = command.ProcessState.ExitCode()
		close(held.exited)
	}()
	select {
	case line := <-first:
		if err := l.parse(held, line); err != nil {
			command.Process.Signal(syscall.SIGTERM)
			if code := held.close(); len(line) == 0 {
				err = l.notAcquired(code)
			}
			return nil, err
		}
	case <-ctx.Done():
		// While it waits, it does not read its input.
		command.Process.Signal(syscall.SIGTERM)
		held.close()
		return nil, context.Cause(ctx)
	}
	held.ctx, held.cancel = context.WithCancelCause(ctx)
	go func() {
		<-held.exited
		held.cancel(ErrLockLost) // Without effect after a release.
	}()
	return held, nil
}

func (l Lock) command() *exec.Cmd {
	program := l.Program
	if program == "" {
		program = "leasehold"
	}
	arguments := append([]string{"lock", l.Name}, l.Arguments...)
	if l.NoWait || l.Wait < 0 {
		arguments = append(arguments, "--no-wait")
	} else if l.Wait > 0 {
		arguments = append(arguments, fmt.Sprintf("--wait=%dms", l.Wait.Milliseconds()))
	}
	if l.Shared {
		arguments = append(arguments, "--shared")
	}
	if l.Slots != 0 {
		arguments = append(arguments, fmt.Sprintf("--slots=%d", l.Slots))
	}
	return exec.Command(program, arguments...)
}

// start starts the program, whose end closes exited. If this process dies, the program receives
// SIGTERM and leaves the queue: while it waits for the lock, it does not read its input.
func start(command *exec.Cmd, exited <-chan struct{}) error {
	started := make(chan error, 1)
	go func() {
		// The signal follows the death of the thread, which must last as long as the program.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		endWithParent(command)
		err := command.Start()
		started <- err
		if err == nil {
			<-exited
		}
	}()
	return <-started
}

// parse sets the token and the slot from a complete line of this lock.
func (l Lock) parse(held *HeldLock, line []byte) error {
	unexpected := fmt.Errorf("leasehold: lock %s: unexpected line %q", l.Name, line)
	var fields map[string]json.RawMessage
	if len(line) == 0 || line[len(line)-1] != '\n' || json.Unmarshal(line, &fields) != nil {
		return unexpected
	}
	var name string
	for field, value := range map[string]any{"lock": &name, "token": &held.token} {
		if json.Unmarshal(fields[field], value) != nil {
			return unexpected
		}
	}
	if slot, there := fields["slot"]; there && json.Unmarshal(slot, &held.slot) != nil {
		return unexpected
	}
	if name != l.Name || held.token < 1 || (held.slot != nil) != (l.Slots != 0) {
		return unexpected
	}
	return nil
}

func (l Lock) notAcquired(code int) error {
	if code == codeNotAcquired {
		return fmt.Errorf("lock %s: %w", l.Name, ErrLockNotAcquired)
	}
	return fmt.Errorf("leasehold: lock %s: leasehold exited with code %d", l.Name, code)
}

// Token returns the fencing token.
func (h *HeldLock) Token() int64 {
	return h.token
}

// Slot returns the number of the slot, and true if the lock has slots.
func (h *HeldLock) Slot() (int, bool) {
	if h.slot == nil {
		return 0, false
	}
	return *h.slot, true
}

// Check returns [ErrLockLost] if the lock was lost, [ErrReleased] if it was released, and nil if it
// is held, as far as leasehold has reported. Call it before each effect.
func (h *HeldLock) Check() error {
	select {
	case <-h.exited:
		h.cancel(ErrLockLost)
	default:
	}
	return context.Cause(h.ctx)
}

// Context returns a context that is cancelled when the lock is lost or released.
func (h *HeldLock) Context() context.Context {
	return h.ctx
}

// Release releases the lock. The error is [ErrLockLost] if it was lost before. Further calls do
// nothing and return nil.
func (h *HeldLock) Release() error {
	if h.over.Swap(true) {
		return nil
	}
	lost := false
	select {
	case <-h.exited:
		lost = true
	default:
	}
	h.cancel(ErrReleased) // Without effect after a loss.
	if code := h.close(); lost || !released(code) {
		return fmt.Errorf("lock %s: %w (exit code %d)", h.name, ErrLockLost, code)
	}
	return nil
}

// released returns true for the codes of leasehold after its input was closed: done, or done after
// a stop signal.
func released(code int) bool {
	switch code {
	case 0, 128 + 1, 128 + 2, 128 + 3, 128 + 15:
		return true
	}
	return false
}

// close closes the input of leasehold, waits for its exit, and returns its code.
func (h *HeldLock) close() int {
	h.input.Close()
	timer := time.AfterFunc(releaseMax, h.kill)
	defer timer.Stop()
	<-h.exited
	return h.code
}
