package leasehold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

var (
	// ErrLockNotAcquired reports that another process held the lock until the wait ended.
	ErrLockNotAcquired = errors.New("leasehold: the lock is held by another process")
	// ErrLockLost reports that a lock was lost. Stop the work: another process may hold the lock.
	ErrLockLost = errors.New("leasehold: the lock was lost")
	// ErrReleased reports that a lock was released.
	ErrReleased = errors.New("leasehold: the lock was released")
)

const codeNotAcquired = 75

// waitMax is the longest wait that the program leasehold accepts.
const waitMax = 31 * 24 * time.Hour

// Lock describes a lock to acquire. The program leasehold holds the lock until its standard input
// closes.
type Lock struct {
	// Name is the name of the lock.
	Name string
	// Wait is the maximum time to wait for other holders. Zero, or more than 31 days, means no limit.
	// A negative value means no wait.
	Wait time.Duration
	// NoWait makes Acquire fail instead of waiting for other holders. Holders that seem to be dead
	// are watched until they expire (usually 24 s).
	NoWait bool
	// Shared is true for a shared lock.
	Shared bool
	// Slots is the number of slots of the lock; zero for a lock without slots. A holder occupies one
	// slot.
	Slots int
	// Arguments are additional flags of leasehold lock, such as --mongodb-uri-file=PATH.
	Arguments []string
	// Program is the path of leasehold; "leasehold" if it is empty.
	Program string
}

// HeldLock is a lock that this process holds. A lost or released HeldLock never becomes valid again.
// The lock is released if the HeldLock is garbage-collected before a call of [HeldLock.Context].
type HeldLock struct {
	name    string
	holder  holder
	process *process
	release sync.Once
	result  error
	keep    sync.Once
	ctx     context.Context
	cancel  context.CancelCauseFunc
}

// holder is the content of the line that reports an acquired lock.
type holder struct {
	token int64
	slot  *int
}

// Do acquires the lock, calls work, and releases the lock. The context of work is cancelled if the
// lock is lost. If the lock was lost, the result has [ErrLockLost], even if work returned nil.
func (l Lock) Do(ctx context.Context, work func(context.Context, *HeldLock) error) (err error) {
	held, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	// The lock is also released if work panics.
	defer func() { err = errors.Join(err, held.Release()) }()
	return work(held.Context(), held)
}

// Acquire waits for the lock. The caller must call [HeldLock.Release]. The error is
// [ErrLockNotAcquired] if another process holds the lock. If leasehold itself fails, Acquire
// returns another error, and leasehold's messages are on standard error. If ctx is cancelled, the
// wait ends without a lock. A lock that Acquire has already returned stays held until its release,
// but its context is cancelled.
func (l Lock) Acquire(ctx context.Context) (*HeldLock, error) {
	if err := causeOf(ctx); err != nil {
		return nil, err
	}
	process, err := startProcess(l.Name, l.command())
	if err != nil {
		return nil, err
	}
	select {
	case line := <-process.first:
		// The program may have exited and ctx may be cancelled.
		if err := causeOf(ctx); err != nil {
			process.abandon()
			return nil, err
		}
		holder, err := l.parse(line)
		if err != nil {
			code := process.abandon()
			if _, reported := reportedCode(l.Name, line); reported || len(line) == 0 {
				err = l.notAcquired(code, line)
			}
			return nil, err
		}
		return newHeldLock(ctx, l.Name, holder, process), nil
	case <-ctx.Done():
		process.abandon()
		return nil, causeOf(ctx)
	}
}

// causeOf returns the reason why a context was cancelled, or nil. Before Go 1.23, [context.Cause]
// returns nil for a custom context.
func causeOf(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return ctx.Err()
}

func newHeldLock(ctx context.Context, name string, holder holder, process *process) *HeldLock {
	held := &HeldLock{name: name, holder: holder, process: process}
	var cancel context.CancelCauseFunc
	held.ctx, cancel = context.WithCancelCause(ctx)
	held.cancel = cancel
	go func() {
		<-process.ended
		cancel(ErrLockLost) // Has no effect after a release.
	}()
	runtime.SetFinalizer(held, func(held *HeldLock) { go held.Release() })
	return held
}

func (l Lock) command() *exec.Cmd {
	program := l.Program
	if program == "" {
		program = "leasehold"
	}
	arguments := append([]string{"lock", l.Name, "--report-exit-code"}, l.Arguments...)
	if l.NoWait || l.Wait < 0 {
		arguments = append(arguments, "--no-wait")
	} else if l.Wait > 0 && l.Wait <= waitMax {
		arguments = append(arguments, fmt.Sprintf("--wait=%.3f", l.Wait.Seconds()))
	}
	if l.Shared {
		arguments = append(arguments, "--shared")
	}
	if l.Slots != 0 {
		arguments = append(arguments, fmt.Sprintf("--slots=%d", l.Slots))
	}
	return exec.Command(program, arguments...)
}

// parse returns the token and the slot of a complete line of this lock.
func (l Lock) parse(line []byte) (holder, error) {
	unexpected := fmt.Errorf("leasehold: lock %s: unexpected line %q", l.Name, line)
	fields := fieldsOf(line)
	var name string
	var found holder
	for field, value := range map[string]any{"lock": &name, "token": &found.token} {
		if json.Unmarshal(fields[field], value) != nil {
			return holder{}, unexpected
		}
	}
	if slot, there := fields["slot"]; there && json.Unmarshal(slot, &found.slot) != nil {
		return holder{}, unexpected
	}
	if name != l.Name || found.token < 1 || (found.slot != nil) != (l.Slots != 0) {
		return holder{}, unexpected
	}
	return found, nil
}

// notAcquired returns the error that the program reports in its last line, if any.
func (l Lock) notAcquired(code int, line []byte) error {
	var why string
	_ = json.Unmarshal(fieldsOf(line)["error"], &why)
	switch {
	case code == codeNotAcquired && why != "":
		return fmt.Errorf("lock %s: %w: %s", l.Name, ErrLockNotAcquired, why)
	case code == codeNotAcquired:
		return fmt.Errorf("lock %s: %w", l.Name, ErrLockNotAcquired)
	case why != "":
		return fmt.Errorf("leasehold: lock %s: %s", l.Name, why)
	}
	return fmt.Errorf("leasehold: lock %s: leasehold exited with code %d", l.Name, code)
}

// Token returns the fencing token.
func (h *HeldLock) Token() int64 {
	return h.holder.token
}

// Slot returns the number of the slot, and true if the lock has slots.
func (h *HeldLock) Slot() (int, bool) {
	if h.holder.slot == nil {
		return 0, false
	}
	return *h.holder.slot, true
}

// Check returns [ErrLockLost] if the lock was lost, [ErrReleased] if it was released, and nil if
// leasehold has reported neither. Call it before each effect.
func (h *HeldLock) Check() error {
	if h.process.hasEnded() {
		h.cancel(ErrLockLost)
	}
	return context.Cause(h.ctx)
}

// Context returns a context that is cancelled when the lock is lost or released. After the first
// call of Context, the lock is not garbage-collected until it is lost or released.
func (h *HeldLock) Context() context.Context {
	// The caller may keep only the context, so the context keeps the lock alive.
	h.keep.Do(func() { context.AfterFunc(h.ctx, func() { runtime.KeepAlive(h) }) })
	return h.ctx
}

// Release releases the lock. The error is [ErrLockLost] if the lock was already lost, or if
// leasehold does not confirm the release in time. Further calls wait for the first call and return
// its result.
func (h *HeldLock) Release() error {
	h.release.Do(func() { h.result = h.end() })
	return h.result
}

func (h *HeldLock) end() error {
	runtime.SetFinalizer(h, nil)
	lost := h.process.hasEnded()
	h.cancel(ErrReleased) // Has no effect after a loss.
	result := h.process.close()
	if !lost && !result.reported {
		return fmt.Errorf("lock %s: %w: leasehold did not confirm the release, so it may be held until it expires", h.name, ErrLockLost)
	}
	if lost || !released(result.code) {
		return fmt.Errorf("lock %s: %w (exit code %d)", h.name, ErrLockLost, result.code)
	}
	return nil
}

// released returns true for the exit codes with which leasehold confirms a release: success, or a
// stop signal.
func released(code int) bool {
	switch code {
	case 0, 128 + 1, 128 + 2, 128 + 3, 128 + 15:
		return true
	}
	return false
}
