// Command elector contends for a Lease with client-go's leader election, as a controller does. The
// benchmark `peers` compares leasehold with it.
//
// It reports in DIRECTORY/status.json, which it replaces atomically: when it starts to lead, and as
// an answer to SIGUSR1, with the number of requests that it has sent.
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

// The values of Kubernetes' own components.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

const module = "k8s.io/client-go"

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the file with the address and the credentials of the API server")
	namespace := flag.String("namespace", "default", "the namespace of the Lease")
	lease := flag.String("lease", "", "the name of the Lease")
	identity := flag.String("identity", "", "the identity of this candidate")
	directory := flag.String("directory", "", "the directory of status.json")
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
	if err := contend(config, *namespace, *lease, *identity, status); err != nil {
		fail(err)
	}
}

// contend runs until SIGTERM or the loss of the Lease.
func contend(config *rest.Config, namespace, lease, identity string, status *status) error {
	lock, err := resourcelock.NewFromKubeconfig(
		resourcelock.LeasesResourceLock, namespace, lease,
		resourcelock.ResourceLockConfig{Identity: identity}, config, renewDeadline,
	)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   leaseDuration,
		RenewDeadline:   renewDeadline,
		RetryPeriod:     retryPeriod,
		ReleaseOnCancel: true,
		Name:            lease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { status.write(true, 0) },
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

// status is the content of the file.
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

// counting wraps the transport of the client, to count its requests.
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
