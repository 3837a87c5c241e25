package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	// Number of ordered operations in a violation's text and in its page.
	shownBefore, drawnBefore = 5, 25
	// Number of unordered operations in a violation's text.
	shownStuck = 8
)

// history is the history of one object: a lock (its acquisitions and their ends), or the lock's
// fenced writes. The rules of the two objects are independent, so both together are linearizable if
// and only if each object is linearizable.
type history struct {
	name   string
	events []*event
}

// partition groups operations by object, and sorts the groups by object name.
func partition(ops []*operation) []history {
	byObject := make(map[string][]*operation)
	var names []string
	for _, op := range ops {
		if byObject[op.object] == nil {
			names = append(names, op.object)
		}
		byObject[op.object] = append(byObject[op.object], op)
	}
	slices.Sort(names)
	var found []history
	for _, name := range names {
		ops := byObject[name]
		for _, part := range []history{{name, reduceLock(ops)}, {name + "/fence", reduceFence(ops)}} {
			if len(part.events) > 0 {
				found = append(found, part)
			}
		}
	}
	return found
}

func (h history) check(timeout time.Duration) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(modelFrom(state{}), operations(h.events), timeout)
}

func operations(events []*event) []porcupine.Operation {
	clients := make(map[string]int)
	var ops []porcupine.Operation
	for _, e := range events {
		client, known := clients[e.op.client]
		if !known {
			client = len(clients)
			clients[e.op.client] = client
		}
		ops = append(ops, porcupine.Operation{
			ClientId: client, Input: e, Call: e.from, Return: e.until, Metadata: e.op.place,
		})
	}
	return ops
}

// violation is the part of a history that proves that the history is not linearizable.
type violation struct {
	history
	// The events of the longest partial linearization, in order.
	ordered []*event
	// The state after these events.
	state state
	// The event that must come next but is not legal.
	stuck *event
	// The unordered events that explain the violation: the ends of the holders, the acquisitions of
	// lower tokens that must precede the stuck event, and the other events that could come next,
	// because they begin before the stuck event ends.
	others []*event
}

// explain returns the violation in a history for which check returned Illegal.
func (h history) explain(timeout time.Duration) violation {
	_, info := porcupine.CheckOperationsVerbose(modelFrom(state{}), operations(h.events), timeout)
	partials := append(info.PartialLinearizations()[0], nil)
	var found violation
	for _, partial := range partials {
		ordered := make(map[int]bool, len(partial))
		for _, id := range partial {
			ordered[id] = true
		}
		var stuck *event
		for id, e := range h.events {
			if !ordered[id] && (stuck == nil || e.until < stuck.until) {
				stuck = e
			}
		}
		further := found.stuck == nil || stuck.until > found.stuck.until
		if further || stuck.until == found.stuck.until && len(partial) > len(found.ordered) {
			found = violation{history: h, stuck: stuck}
			for _, id := range partial {
				found.ordered = append(found.ordered, h.events[id])
			}
		}
	}
	found.state = replay(found.ordered)
	found.others = found.related()
	return found
}

// replay returns the state after these events, which must be legal in this order.
func replay(events []*event) state {
	var s state
	for _, e := range events {
		s, _ = s.step(e)
	}
	return s
}

// related returns the unordered events that explain the violation, in the order of their calls.
func (v violation) related() []*event {
	ordered := make(map[*event]bool, len(v.ordered))
	for _, e := range v.ordered {
		ordered[e] = true
	}
	explains := func(e *event) bool {
		op := e.op
		switch {
		case ordered[e] || e == v.stuck:
			return false
		case op.kind != acquire && slices.ContainsFunc(v.state.holders, func(h holder) bool { return h.token == op.token }):
			return true
		case op.kind == v.stuck.op.kind && op.outcome == succeeded && op.token <= v.stuck.after:
			return true
		}
		_, err := v.state.step(e)
		return e.from <= v.stuck.until && err != errOrder && err != errLowWrite
	}
	var found []*event
	for _, e := range v.events {
		if explains(e) {
			found = append(found, e)
		}
	}
	slices.SortStableFunc(found, func(a, b *event) int { return cmp.Compare(a.op.call, b.op.call) })
	return found
}

// describe writes a violation as text. Times are relative to the history's first call.
func (v violation) describe(out io.Writer) {
	begin := v.events[0].op.call
	for _, e := range v.events {
		begin = min(begin, e.op.call)
	}
	line := func(e *event, reason error) {
		fmt.Fprintf(out, "    %s  %s  (%s)", interval(e.op, begin), e.op, e.op.place)
		if reason != nil {
			fmt.Fprintf(out, "\n        not legal here: %s", reason)
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "%s: not linearizable (times since %.6f s of CLOCK_BOOTTIME)\n", v.name, float64(begin)/1e9)
	recent := v.ordered[max(0, len(v.ordered)-shownBefore):]
	fmt.Fprintf(out, "  ordered: %d of %d operations", len(v.ordered), len(v.events))
	if len(recent) > 0 {
		fmt.Fprint(out, ", the last ones:")
	}
	fmt.Fprintln(out)
	for _, e := range recent {
		line(e, nil)
	}
	fmt.Fprintf(out, "  state: %s\n", v.state)
	fmt.Fprintln(out, "  must be next:")
	line(v.stuck, v.reason(v.stuck))
	if len(v.others) > 0 {
		fmt.Fprintln(out, "  not ordered either:")
	}
	for _, e := range v.others[:min(len(v.others), shownStuck)] {
		line(e, v.reason(e))
	}
	if more := len(v.others) - shownStuck; more > 0 {
		fmt.Fprintf(out, "    and %d more\n", more)
	}
}

// reason returns why an event cannot come next in the state after the ordered operations.
func (v violation) reason(e *event) error {
	if e.from > v.stuck.until {
		return errLater
	}
	_, err := v.state.step(e)
	return err
}

var errLater = errors.New("it begins after the end of the operation that must be next")

// interval returns the time from the call to the return of an operation.
func interval(op *operation, begin int64) string {
	seconds := func(at int64) string { return fmt.Sprintf("%.6f", float64(at-begin)/1e9) }
	if op.return_ == never {
		return fmt.Sprintf("%s s or later", seconds(op.call))
	}
	return fmt.Sprintf("%s to %s s", seconds(op.call), seconds(op.return_))
}

// draw writes porcupine's HTML page of a violation and returns its path. The page starts shortly
// before the violation, in the state at that point.
func (v violation) draw(directory string) (string, error) {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return "", err
	}
	from := max(0, len(v.ordered)-drawnBefore)
	drawn := slices.Concat(v.ordered[from:], []*event{v.stuck}, v.others)
	model := modelFrom(replay(v.ordered[:from]))
	_, info := porcupine.CheckOperationsVerbose(model, operations(drawn), time.Minute)
	path := filepath.Join(directory, strings.ReplaceAll(url.PathEscape(v.name), "%2F", "+")+".html")
	return path, porcupine.VisualizePath(model, info, path)
}
