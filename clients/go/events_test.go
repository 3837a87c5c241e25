package leasehold

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

const stream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"

// server sends streams that a real daemon never sends.
type server struct {
	t        *testing.T
	listener *net.TCPListener
}

func startServer(t *testing.T) server {
	t.Helper()
	listener := must(net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))
	t.Cleanup(func() { listener.Close() })
	listener.SetDeadline(time.Now().Add(2 * long))
	return server{t, listener}
}

func (s server) address() string {
	return s.listener.Addr().String()
}

func (s server) accept(answer string) net.Conn {
	s.t.Helper()
	connection, err := s.listener.Accept()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { connection.Close() })
	var request []byte
	for !bytes.HasSuffix(request, []byte("\r\n\r\n")) {
		part := make([]byte, 4096)
		length, err := connection.Read(part)
		if err != nil {
			s.t.Fatal(err)
		}
		request = append(request, part[:length]...)
	}
	io.WriteString(connection, answer)
	return connection
}

func event(t *testing.T, changes map[string]any) string {
	t.Helper()
	return "data: " + string(bytes.TrimSpace(good(t, changes))) + "\n\n"
}

func follow(t *testing.T, address string) (*Follower, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return Follow(ctx, address), cancel
}

func lead(t *testing.T, follower *Follower) *Term {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	term, err := follower.Lead(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return term
}

// led returns a follower that leads with token 7, and the follower's stream.
func led(t *testing.T, s server) (*Follower, net.Conn, *Term) {
	t.Helper()
	follower, _ := follow(t, s.address())
	connection := s.accept(stream + event(t, nil))
	term := lead(t, follower)
	if token, leads := follower.Token(); !leads || token != 7 || term.Token() != 7 || term.Check() != nil {
		t.Fatal(token, leads, term.Check())
	}
	return follower, connection, term
}

func leadsWith(follower *Follower, token int64) func() bool {
	return func() bool {
		found, leads := follower.Token()
		return leads && found == token
	}
}

func TestHostileLinesAreNotLeader(t *testing.T) {
	s := startServer(t)
	for name, line := range inputs(t, "lines") {
		t.Run(name, func(t *testing.T) {
			follower, connection, term := led(t, s)
			go connection.Write(append(line, "\n\n"...))
			if bytes.HasPrefix(line, []byte("data:")) {
				ended(t, term, ErrNotLeader)
				if follower.IsLeader() {
					t.Fatal(string(line))
				}
			} else {
				// The follower ignores this event and applies the next one.
				io.WriteString(connection, event(t, map[string]any{"token": 8}))
				eventually(t, "the next event counts", leadsWith(follower, 8))
			}
		})
	}
}

// leadsUntil sends events with increasing deadlines until the follower leads, because a busy
// machine may handle an event only after the event's deadline. It returns the term and its
// deadline.
func leadsUntil(t *testing.T, follower *Follower, connection net.Conn) (*Term, uint64) {
	t.Helper()
	for brief := 200 * time.Millisecond; brief < long; brief *= 2 {
		until := now(t) + uint64(brief)
		io.WriteString(connection, event(t, map[string]any{"valid_until_boottime_ns": until}))
		ctx, cancel := context.WithTimeout(context.Background(), brief)
		term, err := follower.Lead(ctx)
		cancel()
		if err == nil {
			return term, until
		}
	}
	t.Fatal("it does not lead")
	return nil, 0
}

func TestAStreamThatHangsEndsTheLeadershipAtItsDeadline(t *testing.T) {
	s := startServer(t)
	follower, _ := follow(t, s.address())
	connection := s.accept(stream)
	term, until := leadsUntil(t, follower, connection)
	ended(t, term, ErrNotLeader)
	if now(t) < until || follower.IsLeader() || !errors.Is(context.Cause(term.Context()), ErrNotLeader) {
		t.Fatal(now(t), until)
	}
	// A later event of the same token does not make the term valid again.
	io.WriteString(connection, event(t, nil))
	if lead(t, follower) == term || term.Check() == nil {
		t.Fatal("revived")
	}
}

func TestCheckDoesNotWaitForTheContext(t *testing.T) {
	s := startServer(t)
	follower, _ := follow(t, s.address())
	term, until := leadsUntil(t, follower, s.accept(stream))
	for before := now(t); term.Check() == nil; before = now(t) {
		if before >= until {
			t.Fatal("it still leads")
		}
	}
	if term.Context().Err() == nil {
		t.Fatal("the context is not cancelled")
	}
}

func TestAnExtensionKeepsTheLeadership(t *testing.T) {
	s := startServer(t)
	for brief := 300 * time.Millisecond; brief < long; brief *= 2 {
		follower, cancel := follow(t, s.address())
		connection := s.accept(stream)
		until := now(t) + uint64(brief)
		io.WriteString(connection, event(t, map[string]any{"valid_until_boottime_ns": until}))
		waiting, stop := context.WithTimeout(context.Background(), brief)
		term, err := follower.Lead(waiting)
		stop()
		io.WriteString(connection, event(t, nil))
		eventually(t, "the first deadline passed", func() bool { return now(t) > until })
		if err == nil && term.Check() == nil {
			if lead(t, follower) != term || term.Context().Err() != nil {
				t.Fatal("another leadership")
			}
			return
		}
		// On this busy machine, the second event was read after the first event's deadline.
		cancel()
	}
	t.Fatal("an extension does not keep it")
}

func TestTheEndOfAStreamEndsTheLeadershipUntilTheNextEvent(t *testing.T) {
	partial := event(t, map[string]any{"token": 9})
	for _, end := range []string{"", "data: {", partial[:len(partial)-2], string(make([]byte, 70_000))} {
		s := startServer(t)
		follower, connection, term := led(t, s)
		go func() {
			io.WriteString(connection, end)
			if len(end) < bytesMax {
				connection.Close()
			}
		}()
		ended(t, term, ErrNotLeader)
		if leadsWith(follower, 9)() || follower.IsLeader() {
			t.Fatalf("%q", end)
		}
		s.accept(stream + event(t, nil))
		if lead(t, follower).Token() != 7 || term.Check() == nil {
			t.Fatalf("%q", end)
		}
	}
}

func TestASilentStreamIsOpenedAgain(t *testing.T) {
	defer func(before time.Duration) { silenceMax = before }(silenceMax)
	silenceMax = 300 * time.Millisecond
	s := startServer(t)
	follower, cancel := follow(t, s.address())
	// On a busy machine, a stream can end before its event is read.
	streams := make(chan struct{})
	go func() {
		defer close(streams)
		for token := 7; ; token++ {
			connection, err := s.listener.Accept()
			if err != nil {
				return
			}
			defer connection.Close()
			io.WriteString(connection, stream+event(t, map[string]any{"token": token}))
		}
	}()
	term := lead(t, follower)
	ended(t, term, ErrNotLeader)
	if next := lead(t, follower); next.Token() <= term.Token() {
		t.Fatal(next.Token(), term.Token())
	}
	cancel()
	eventually(t, "the stream is closed", func() bool { return !follower.IsLeader() })
	s.listener.Close()
	<-streams
}

func TestOtherAnswersAreNotLeader(t *testing.T) {
	s := startServer(t)
	for _, answer := range []string{
		"HTTP/1.1 302 Found\r\nLocation: http://" + s.address() + "/other\r\n\r\n",
		"HTTP/1.1 503 Busy\r\n\r\n", "HTTP/1.1 404 None\r\n\r\n", "",
	} {
		follower, _ := follow(t, s.address())
		// The server leaves the stream open, so a reader that accepted the line would lead.
		s.accept(answer + event(t, map[string]any{"token": 9}))
		eventually(t, "there is a reason", func() bool { return follower.Err() != nil })
		s.accept(stream + event(t, nil))
		if term := lead(t, follower); term.Token() != 7 || follower.Err() != nil {
			t.Fatal(answer, term.Token(), follower.Err())
		}
	}
}

func TestProxiesOfTheEnvironmentAreNotUsed(t *testing.T) {
	t.Setenv("http_proxy", "http://127.0.0.1:9")
	t.Setenv("no_proxy", "")
	led(t, startServer(t))
}

func TestACancelledFollowerIsNotLeader(t *testing.T) {
	s := startServer(t)
	follower, cancel := follow(t, s.address())
	s.accept(stream + event(t, nil))
	term := lead(t, follower)
	cancel()
	ended(t, term, context.Canceled)
	if follower.IsLeader() {
		t.Fatal("it leads")
	}
	if _, err := follower.Lead(context.Background()); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestLeadNamesTheReasonIfTheDaemonSendsNoEvents(t *testing.T) {
	follower, _ := follow(t, "127.0.0.1:1")
	eventually(t, "the connection failed", func() bool { return follower.Err() != nil })
	ctx, stop := context.WithTimeout(context.Background(), time.Millisecond)
	defer stop()
	_, err := follower.Lead(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "refused") {
		t.Fatal(err)
	}
}

func TestAStepDownEndsTheLeadership(t *testing.T) {
	t.Parallel()
	lease := "go-step-down"
	a := startDaemon(t, lease, "a")
	followerA, _ := follow(t, a.address)
	term := lead(t, followerA)
	if token := a.leads(); token != term.Token() {
		t.Fatal(token, term.Token())
	}
	b := startDaemon(t, lease, "b")
	followerB, _ := follow(t, b.address)
	b.follows("a")
	if followerB.IsLeader() {
		t.Fatal("b leads")
	}
	run(t, "step-down", lease, store(t), "--reason=test")
	ended(t, term, ErrNotLeader)
	if lead(t, followerB).Token() <= term.Token() || followerA.IsLeader() {
		t.Fatal("not stepped down")
	}
}

func TestTheLeadershipOfAFrozenDaemonEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "go-frozen-events", "a")
	follower, _ := follow(t, d.address)
	term := lead(t, follower)
	// Events extend the leadership beyond its first deadline.
	first := now(t) + 4_600_000_000
	eventually(t, "the first deadline passed", func() bool { return now(t) > first })
	if err := term.Check(); err != nil {
		t.Fatal(err)
	}
	d.signal(syscall.SIGSTOP)
	frozen, until := now(t), d.until()
	ended(t, term, ErrNotLeader)
	// The last event may be older than the file, by at most a second and a renewal interval.
	if at := now(t); at < until-2_000_000_000 || at > until+5_000_000_000 || follower.IsLeader() {
		t.Fatal(at, until)
	}
	eventually(t, "the deadline passed", func() bool { return now(t) > frozen+authorityMaxNs })
	d.signal(syscall.SIGCONT)
	if again := lead(t, follower); again.Token() <= term.Token() || term.Check() == nil {
		t.Fatal(again.Token(), term.Token())
	}
}

func TestTheStreamOfADaemonThatWasKilledIsOpenedAgain(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "go-killed", "a")
	follower, _ := follow(t, d.address)
	term := lead(t, follower)
	d.kill()
	ended(t, term, ErrNotLeader)
	// The term ends with the stream, although the file is still valid.
	if !d.status().IsLeader() {
		t.Fatal("the file is stale")
	}
	d.start()
	if again := lead(t, follower); again.Token() <= term.Token() {
		t.Fatal(again.Token(), term.Token())
	}
}
