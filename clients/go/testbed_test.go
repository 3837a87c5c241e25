package leasehold

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// long is the timeout of waits that take milliseconds on an idle machine.
const long = time.Minute

// setting returns an environment variable that `cargo test --test clients` sets.
func setting(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv("CLIENT_TEST_" + name)
	if value == "" {
		t.Fatalf("CLIENT_TEST_%s is not set: run cargo test --test clients", name)
	}
	return value
}

func store(t *testing.T) string {
	return "--mongodb-uri-file=" + setting(t, "URI_FILE")
}

// inputs returns the contents of all inputs of one kind, by name.
func inputs(t *testing.T, kind string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(setting(t, "INPUTS"), kind, "*"))
	if err != nil || len(paths) < 20 {
		t.Fatal(paths, err)
	}
	found := make(map[string][]byte)
	for _, path := range paths {
		found[filepath.Base(path)] = must(os.ReadFile(path))
	}
	return found
}

// good returns the JSON of a leader with token 7 for the next hour, with changed fields.
func good(t *testing.T, changes map[string]any) []byte {
	t.Helper()
	text := must(os.ReadFile(filepath.Join(setting(t, "INPUTS"), "good")))
	if changes == nil {
		return text
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	for name, value := range changes {
		fields[name] = must(json.Marshal(value))
	}
	return must(json.Marshal(fields))
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// Longer than the renew_deadline of the timings, after which a frozen daemon has no authority.
// The file may lag the daemon by one renewal.
const authorityMaxNs = 5_000_000_000

func now(t *testing.T) uint64 {
	t.Helper()
	now, ok := boottime()
	if !ok {
		t.Fatal("no CLOCK_BOOTTIME")
	}
	return now
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(long); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not so: ", what)
		}
	}
}

// ended waits until Check of a term or a lock returns this error.
func ended(t *testing.T, over interface {
	Context() context.Context
	Check() error
}, expected error) {
	t.Helper()
	select {
	case <-over.Context().Done():
	case <-time.After(long):
		t.Fatal("it does not end")
	}
	if err := over.Check(); !errors.Is(err, expected) {
		t.Fatal(err)
	}
}

// daemons is the number of daemons so far. Each daemon has its own port, which stays reserved because
// a daemon that was killed starts again on its port.
var daemons atomic.Int32

// A daemon that exits with the test or with this process.
type daemon struct {
	t                        *testing.T
	lease, identity, address string
	directory                string
	process                  *exec.Cmd
}

func startDaemon(t *testing.T, lease, identity string) *daemon {
	t.Helper()
	port := strings.Fields(setting(t, "PORTS"))[daemons.Add(1)-1]
	d := &daemon{
		t: t, lease: lease, identity: identity, address: "127.0.0.1:" + port,
		directory: filepath.Join(t.TempDir(), "status"),
	}
	t.Cleanup(d.kill)
	d.start()
	return d
}

func (d *daemon) start() {
	d.t.Helper()
	flags := append([]string{
		"--pdeathsig", "KILL", setting(d.t, "PROGRAM"), "run", "--lease=" + d.lease, "--identity=" + d.identity,
		store(d.t), "--status-directory=" + d.directory, "--http-listen=" + d.address, "--lease-handoff-delay=0s",
	}, strings.Fields(setting(d.t, "TIMINGS"))...)
	d.process = exec.Command("setpriv", flags...)
	d.process.Stderr = os.Stderr
	if err := d.process.Start(); err != nil {
		d.t.Fatal(err)
	}
}

func (d *daemon) kill() {
	d.process.Process.Kill()
	d.process.Wait()
}

func (d *daemon) signal(signal syscall.Signal) {
	d.t.Helper()
	if err := d.process.Process.Signal(signal); err != nil {
		d.t.Fatal(err)
	}
}

func (d *daemon) status() Status {
	return ReadStatus(d.directory)
}

// leads waits until the status file says leader, and returns the token.
func (d *daemon) leads() (token int64) {
	d.t.Helper()
	eventually(d.t, "it leads", func() (leads bool) {
		token, leads = d.status().Token()
		return leads
	})
	return token
}

func (d *daemon) follows(leader string) {
	d.t.Helper()
	eventually(d.t, "it follows", func() bool {
		document := d.status().Document
		return string(document["role"]) == `"follower"` && strings.Contains(string(document["holder"]), `"`+leader+`"`)
	})
}

// until returns the deadline in the status file.
func (d *daemon) until() uint64 {
	d.t.Helper()
	var until uint64
	if err := json.Unmarshal(d.status().Document["valid_until_boottime_ns"], &until); err != nil {
		d.t.Fatal(err)
	}
	return until
}

// run runs leasehold until it exits successfully, and returns its standard output.
func run(t *testing.T, arguments ...string) []byte {
	t.Helper()
	output, err := exec.Command(setting(t, "PROGRAM"), arguments...).Output()
	if err != nil {
		t.Fatal(arguments, err)
	}
	return output
}
