// Command linearizability checks histories of locks with porcupine. Each lock must behave like one
// object whose operations take effect one at a time, each at an instant between its call and its
// return.
//
// A history has one JSON object per line:
//
//	client   the process
//	object   the lock
//	kind     acquire | release | lost | write
//	token    of the acquisition, or null if the acquisition failed or its outcome is unknown
//	mode     of an acquisition: exclusive | shared | slot
//	slots    the number of slots of the lock, in mode slot
//	slot     the acquired slot; optional
//	call     nanoseconds of CLOCK_BOOTTIME
//	return   nanoseconds of CLOCK_BOOTTIME, or null if unknown
//	outcome  ok | failed | unknown
//
// An operation `lost` is the end of a holder that was killed or lost its claim. Its call is the
// last instant at which the holder relied on the lock, and the operation takes effect at any time
// after its call. A `write` is fenced with the token; outcome `failed` means that the write was
// refused because of its token. An operation with outcome `unknown` has no effect, or takes effect
// at any time after its call.
//
// Exit codes: 0 linearizable, 1 not linearizable, 2 wrong usage or an unreadable file, 3 undecided
// within the time limit.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	exitOK = iota
	exitViolated
	exitUnusable
	exitUndecided
)

const module = "github.com/anishathalye/porcupine"

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

type options struct {
	timeout   time.Duration
	visualize string
	files     []string
}

func run(arguments []string, out, notes io.Writer) int {
	flags := flag.NewFlagSet("linearizability", flag.ContinueOnError)
	flags.SetOutput(notes)
	flags.Usage = func() {
		fmt.Fprintln(notes, "usage: linearizability [--timeout 60s] [--visualize DIR] FILE…")
		flags.PrintDefaults()
	}
	var o options
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "time limit of each object")
	flags.StringVar(&o.visualize, "visualize", "", "directory for an HTML page of each violation")
	version := flags.Bool("version", false, "version of porcupine")
	switch err := flags.Parse(arguments); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUnusable
	}
	if *version {
		fmt.Fprintln(out, "porcupine", porcupineVersion())
		return exitOK
	}
	o.files = flags.Args()
	if len(o.files) == 0 || o.timeout <= 0 {
		fmt.Fprintln(notes, "linearizability: needs at least one FILE, and a positive --timeout")
		flags.Usage()
		return exitUnusable
	}
	code, err := o.checkFiles(out, notes)
	if err != nil {
		fmt.Fprintln(notes, "linearizability:", err)
		return exitUnusable
	}
	return code
}

// checkFiles checks the histories in all files and returns the exit code.
func (o options) checkFiles(out, notes io.Writer) (int, error) {
	var ops []*operation
	for _, path := range o.files {
		found, err := readFile(path, notes)
		if err != nil {
			return 0, err
		}
		ops = append(ops, found...)
	}
	if len(ops) == 0 {
		return 0, fmt.Errorf("no operations in %s; pass files with a history", strings.Join(o.files, ", "))
	}
	violated, undecided := 0, 0
	for _, history := range partition(ops) {
		switch history.check(o.timeout) {
		case porcupine.Ok:
		case porcupine.Illegal:
			violated++
			o.report(history, out, notes)
		default:
			undecided++
			fmt.Fprintf(out, "%s: undecided after %s; raise --timeout, or record shorter histories\n", history.name, o.timeout)
		}
	}
	summary := summarize(ops)
	switch {
	case violated > 0:
		fmt.Fprintf(out, "%s: not linearizable (%s)\n", summary, count(violated, "violation"))
		return exitViolated, nil
	case undecided > 0:
		fmt.Fprintf(out, "%s: undecided (%s)\n", summary, count(undecided, "history"))
		return exitUndecided, nil
	}
	fmt.Fprintf(out, "%s: linearizable\n", summary)
	return exitOK, nil
}

// report writes a violation and, with VISUALIZE, its page.
func (o options) report(h history, out, notes io.Writer) {
	violation := h.explain(o.timeout)
	violation.describe(out)
	if o.visualize == "" {
		return
	}
	path, err := violation.draw(o.visualize)
	if err != nil {
		fmt.Fprintf(notes, "linearizability: no page of %s: %s\n", h.name, err)
		return
	}
	fmt.Fprintf(out, "  page: %s\n", path)
}

// summarize returns one line with the number of all operations, and one line with the number of
// operations of each kind.
func summarize(ops []*operation) string {
	objects := make(map[string]bool)
	numbers := make(map[kind]map[outcome]int)
	for _, op := range ops {
		objects[op.object] = true
		if numbers[op.kind] == nil {
			numbers[op.kind] = make(map[outcome]int)
		}
		numbers[op.kind][op.outcome]++
	}
	var text strings.Builder
	for _, kind := range kinds {
		n := numbers[kind]
		fmt.Fprintf(&text, "%s: %d ok, %d failed, %d unknown\n", kind, n[succeeded], n[failed], n[unknown])
	}
	acquisitions := numbers[acquire][succeeded]
	fmt.Fprintf(&text, "%s, %s, %s", count(len(objects), "object"), count(len(ops), "operation"), count(acquisitions, "acquisition"))
	return text.String()
}

func count(number int, noun string) string {
	if number == 1 {
		return "1 " + noun
	}
	if stem, found := strings.CutSuffix(noun, "y"); found {
		return fmt.Sprintf("%d %sies", number, stem)
	}
	return fmt.Sprintf("%d %ss", number, noun)
}

func porcupineVersion() string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return dependency.Version
		}
	}
	return "unknown"
}
