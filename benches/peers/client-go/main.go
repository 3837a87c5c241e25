// Command elector contends for a Lease with client-go's leader election, as a controller does. The
// benchmark `peers` and the nemesis compare leasehold with it.
//
// When elector starts to lead, and on SIGUSR1, elector atomically replaces DIRECTORY/status.json,
// which contains the number of requests sent so far.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The defaults equal the defaults of the Kubernetes components.
var (
	leaseDuration = flag.Duration("lease-duration", 15*time.Second, "LeaseDuration")
	renewDeadline = flag.Duration("renew-deadline", 10*time.Second, "RenewDeadline")
	retryPeriod   = flag.Duration("retry-period", 2*time.Second, "RetryPeriod")
)

const pace = 20 * time.Millisecond

const module = "k8s.io/client-go"

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the file with the address and the credentials of the API server")
	namespace := flag.String("namespace", "default", "the namespace of the Lease")
	lease := flag.String("lease", "", "the name of the Lease")
	identity := flag.String("identity", "", "the identity of this candidate")
	directory := flag.String("directory", "", "the directory of status.json")
	journal := flag.String("journal", "", "the file of lines that are written while this candidate leads")
	duration := flag.Duration("work", 0, "how long it leads; with -journal")
	version := flag.Bool("version", false, "print the version of client-go")
	flag.Parse()
	if *version {
		printVersion()
		return
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fail(err)
	}
	status := &status{directory: *directory}
	config.Wrap(status.counting)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	work := func(context.Context) {}
	if *journal != "" {
		work = func(leads context.Context) {
			if err := write(leads, *journal, *identity, *duration); err != nil {
				fail(err)
			}
			stop()
		}
	}
	if err := contend(ctx, config, *namespace, *lease, *identity, status, work); err != nil {
		fail(err)
	}
}

// contend runs until the context is done or the Lease is lost. A leader also writes to the journal.
func contend(
	ctx context.Context, config *rest.Config, namespace, lease, identity string, status *status,
	work func(context.Context),
) error {
	lock, err := resourcelock.NewFromKubeconfig(
		resourcelock.LeasesResourceLock, namespace, lease,
		resourcelock.ResourceLockConfig{Identity: identity}, config, *renewDeadline,
	)
	if err != nil {
		return err
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   *leaseDuration,
		RenewDeadline:   *renewDeadline,
		RetryPeriod:     *retryPeriod,
		ReleaseOnCancel: true,
		Name:            lease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leads context.Context) {
				status.write(true, 0)
				work(leads)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		for range asked {
			status.write(elector.IsLeader(), 1)
		}
	}()
	elector.Run(ctx)
	return nil
}

// write appends lines "CLOCK_BOOTTIME TOKEN WRITER PROCESS" until leads is done or duration has
// passed.
func write(leads context.Context, journal, identity string, duration time.Duration) error {
	file, err := os.OpenFile(journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	end := time.Now().Add(duration)
	for leads.Err() == nil && time.Now().Before(end) {
		if _, err := fmt.Fprintf(file, "%d 0 %s %d\n", boottime(), identity, os.Getpid()); err != nil {
			return err
		}
		time.Sleep(pace)
	}
	return nil
}

// status is the content of status.json.
type status struct {
	directory string
	requests  atomic.Int64
	mutex     sync.Mutex
	answers   int
}

func (s *status) write(leads bool, answers int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.answers += answers
	content := map[string]any{"leader": leads, "requests": s.requests.Load(), "answers": s.answers}
	if leads {
		content["valid_until_boottime_ns"] = boottime() + renewDeadline.Nanoseconds()
	}
	text, err := json.Marshal(content)
	if err != nil {
		fail(err)
	}
	path := filepath.Join(s.directory, "status.json")
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		fail(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		fail(err)
	}
}

// counting wraps the client's transport and counts its requests.
func (s *status) counting(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		s.requests.Add(1)
		return next.RoundTrip(request)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// boottime returns CLOCK_BOOTTIME in nanoseconds, the clock of the benchmark.
func boottime() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		fail(err)
	}
	return now.Nano()
}

func printVersion() {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			fmt.Println(dependency.Version)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "elector:", err)
	os.Exit(1)
}
