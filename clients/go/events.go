package leasehold

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// ErrNotLeader reports that a leadership has ended.
var ErrNotLeader = errors.New("leasehold: the leadership has ended")

var (
	reconnectAfter = time.Second
	// silenceMax is the longest silence of a live stream: the daemon sends a comment after 5 s
	// without an event.
	silenceMax = 15 * time.Second
	// pollInterval is short because timers stop while the machine is suspended.
	pollInterval = 100 * time.Millisecond
)

// Term is one period in which this candidate leads. An ended term never becomes valid
// again.
type Term struct {
	token  int64
	status atomic.Pointer[Status]
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// Token returns the fencing token.
func (t *Term) Token() int64 {
	return t.token
}

// Check returns nil if this leadership has not ended at this instant, otherwise [ErrNotLeader] or
// the cause of an earlier end. Call it before each effect.
func (t *Term) Check() error {
	if token, leads := t.status.Load().Token(); !leads || token != t.token {
		t.cancel(ErrNotLeader)
	}
	return context.Cause(t.ctx)
}

// Context returns a context that is cancelled when this leadership has ended. The cancellation may
// be some milliseconds late, and a tenth of a second late after the machine was suspended.
// [Term.Check] is never late.
func (t *Term) Context() context.Context {
	return t.ctx
}

// watch ends the term at its deadline.
func (t *Term) watch() {
	for t.Check() == nil {
		timer := time.NewTimer(min(pollInterval, t.status.Load().ValidFor()))
		select {
		case <-timer.C:
		case <-t.ctx.Done():
			timer.Stop()
		}
	}
}

// extend adopts a later status of the same leadership. It returns false for any other status.
func (t *Term) extend(status Status) bool {
	token, leads := status.Token()
	if !leads || token != t.token || t.Check() != nil {
		return false
	}
	t.status.Store(&status)
	return true
}

// Follower reads the events of a daemon until its context is cancelled.
type Follower struct {
	ctx     context.Context
	url     string
	client  http.Client
	mutex   sync.Mutex
	term    *Term
	err     error
	changed chan struct{} // Closed and replaced at each change.
}

// Follow follows the events of the daemon whose http.listen is address, such as "127.0.0.1:9402".
// The daemon must run on this machine. When ctx is cancelled, the stream and the current term end.
func Follow(ctx context.Context, address string) *Follower {
	f := &Follower{
		ctx: ctx,
		url: "http://" + address + "/events",
		client: http.Client{
			// Unlike the default transport, this transport ignores proxy settings of the environment.
			Transport:     &http.Transport{DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		changed: make(chan struct{}),
	}
	go f.run()
	return f
}

// Token returns the fencing token, and true if the candidate leads at this instant.
func (f *Follower) Token() (int64, bool) {
	f.mutex.Lock()
	term := f.term
	f.mutex.Unlock()
	if term == nil || term.Check() != nil {
		return 0, false
	}
	return term.token, true
}

// IsLeader returns true if the candidate leads at this instant.
func (f *Follower) IsLeader() bool {
	_, leads := f.Token()
	return leads
}

// Lead waits until the candidate leads. It fails only if ctx or the follower's context is
// cancelled. The error names the cause of the cancellation and, if the daemon sends no events, the
// reason.
func (f *Follower) Lead(ctx context.Context) (*Term, error) {
	for {
		f.mutex.Lock()
		term, changed := f.term, f.changed
		f.mutex.Unlock()
		if term != nil && term.Check() == nil {
			return term, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if err := f.Err(); err != nil {
				return nil, fmt.Errorf("%w: no events: %w", causeOf(ctx), err)
			}
			return nil, causeOf(ctx)
		case <-f.ctx.Done():
			return nil, causeOf(f.ctx)
		}
	}
}

// Err returns the reason why the last stream ended or could not be opened; nil after an event. The
// reason is for log messages.
func (f *Follower) Err() error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.err
}

func (f *Follower) run() {
	for f.ctx.Err() == nil {
		err := f.readEvents()
		f.mutex.Lock()
		f.err = err
		f.mutex.Unlock()
		// Without the stream, a step-down of the daemon would go unnoticed.
		f.accept(Status{})
		select {
		case <-time.After(reconnectAfter):
		case <-f.ctx.Done():
		}
	}
}

func (f *Follower) readEvents() error {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	silence := time.AfterFunc(silenceMax, cancel)
	defer silence.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "text/event-stream")
	answer, err := f.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("leasehold: unexpected HTTP status %d", answer.StatusCode)
	}
	for lines := bufio.NewReaderSize(answer.Body, bytesMax); ; {
		// An incomplete line, or a line that is too long, is an error.
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("leasehold: the stream has ended: %w", err)
		}
		silence.Reset(silenceMax)
		if data, isData := bytes.CutPrefix(line, []byte("data:")); isData {
			status := parse(data, true)
			f.accept(status)
			if status.Document == nil {
				return errors.New("leasehold: invalid line in the event stream")
			}
		}
	}
}

func (f *Follower) accept(status Status) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if status.Document != nil {
		f.err = nil
	}
	if f.term != nil && f.term.extend(status) {
		return
	}
	if f.term != nil {
		f.term.cancel(ErrNotLeader)
		f.term = nil
	}
	if token, leads := status.Token(); leads {
		term := &Term{token: token}
		term.status.Store(&status)
		term.ctx, term.cancel = context.WithCancelCause(f.ctx)
		go term.watch()
		f.term = term
	}
	close(f.changed)
	f.changed = make(chan struct{})
}
