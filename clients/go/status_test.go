package leasehold

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func status(t *testing.T, text []byte) Status {
	t.Helper()
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "status.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return ReadStatus(directory)
}

func notLeader(t *testing.T, s Status) {
	t.Helper()
	if token, leads := s.Token(); leads || token != 0 || s.IsLeader() || s.ValidFor() != 0 {
		t.Fatal("leads with token ", token)
	}
}

func leader(t *testing.T, s Status) {
	t.Helper()
	if token, leads := s.Token(); !leads || token != 7 || !s.IsLeader() || s.ValidFor() > time.Hour {
		t.Fatal(token, leads, s.ValidFor())
	}
}

func TestAValidFileLeads(t *testing.T) {
	s := status(t, good(t, nil))
	leader(t, s)
	if s.ValidFor() < 50*time.Minute || string(s.Document["lease"]) != `"orders"` {
		t.Fatal(s.ValidFor(), s.Document)
	}
}

func TestADeadlineIsComparedAtEachCall(t *testing.T) {
	var s Status
	var until uint64
	// A busy machine may need longer than the first deadline.
	for brief := uint64(200_000_000); !s.IsLeader(); brief *= 2 {
		if brief > uint64(long) {
			t.Fatal("it does not lead")
		}
		until = now(t) + brief
		s = status(t, good(t, map[string]any{"valid_until_boottime_ns": until}))
	}
	eventually(t, "it ends", func() bool { return !s.IsLeader() })
	if now(t) < until {
		t.Fatal("too early")
	}
	notLeader(t, s)
}

func TestAPassedDeadlineIsNotLeader(t *testing.T) {
	notLeader(t, status(t, good(t, map[string]any{"valid_until_boottime_ns": now(t)})))
	notLeader(t, Status{})
}

func TestAnotherBootIsNotLeader(t *testing.T) {
	notLeader(t, status(t, good(t, map[string]any{"boot_id": "00000000-0000-0000-0000-000000000000"})))
	// A daemon that could not read the boot id wrote null. The reader then checks only the deadline.
	leader(t, status(t, good(t, map[string]any{"boot_id": nil})))
}

func TestABootThatCannotBeReadNowIsNotLeader(t *testing.T) {
	text := good(t, nil)
	leader(t, parse(text, false))
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	none := before
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	s := parse(text, false)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	notLeader(t, s)
}

func TestAnotherTimeNamespaceIsNotLeader(t *testing.T) {
	notLeader(t, status(t, good(t, map[string]any{"time_namespace": 1})))
	notLeader(t, status(t, good(t, map[string]any{"time_namespace": "x"})))
}

func TestNoFileIsNotLeader(t *testing.T) {
	s := ReadStatus(filepath.Join(t.TempDir(), "absent"))
	notLeader(t, s)
	if s.Document != nil {
		t.Fatal(s.Document)
	}
}

func TestADirectoryOrALongFileIsNotLeader(t *testing.T) {
	notLeader(t, status(t, append(good(t, nil), make([]byte, bytesMax)...)))
	directory := t.TempDir()
	if err := os.Mkdir(filepath.Join(directory, "status.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	notLeader(t, ReadStatus(directory))
}

func TestAFIFOIsNotLeader(t *testing.T) {
	directory := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(directory, "status.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan Status, 1)
	go func() { read <- ReadStatus(directory) }()
	select {
	case s := <-read:
		notLeader(t, s)
	case <-time.After(long):
		t.Fatal("it blocks")
	}
}

func TestAPartialFileIsNotLeader(t *testing.T) {
	text := good(t, nil)
	directory := t.TempDir()
	for length := range text {
		if err := os.WriteFile(filepath.Join(directory, "status.json"), text[:length], 0o600); err != nil {
			t.Fatal(err)
		}
		notLeader(t, ReadStatus(directory))
	}
}

func TestHostileFilesAreNotLeader(t *testing.T) {
	for name, text := range inputs(t, "files") {
		t.Run(name, func(t *testing.T) { notLeader(t, status(t, text)) })
	}
}

func TestAFrozenDaemonIsLeaderUntilItsDeadline(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "go-frozen-file", "a")
	token := d.leads()
	d.signal(syscall.SIGSTOP)
	stopped := now(t)
	frozen, until := d.status(), d.until()
	if found, leads := frozen.Token(); !leads || found != token {
		t.Fatal(found, leads)
	}
	eventually(t, "it is not leader", func() bool { return !d.status().IsLeader() })
	if now(t) < until || frozen.IsLeader() {
		t.Fatal(now(t), until)
	}
	// The file still contains leader: true.
	if leader := string(d.status().Document["leader"]); leader != "true" {
		t.Fatal(leader)
	}
	eventually(t, "the deadline passed", func() bool { return now(t) > stopped+authorityMaxNs })
	d.signal(syscall.SIGCONT)
	eventually(t, "it leads again", func() bool {
		again, leads := d.status().Token()
		return leads && again > token
	})
}

func TestAFollowerIsNotLeader(t *testing.T) {
	t.Parallel()
	a := startDaemon(t, "go-follower", "a")
	a.leads()
	b := startDaemon(t, "go-follower", "b")
	b.follows("a")
	notLeader(t, b.status())
	if !a.status().IsLeader() {
		t.Fatal("a does not lead")
	}
}
