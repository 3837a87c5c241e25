package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
)

type kind string

const (
	acquire kind = "acquire"
	release kind = "release"
	lost    kind = "lost"
	write   kind = "write"
)

type mode string

const (
	exclusive mode = "exclusive"
	shared    mode = "shared"
	slotted   mode = "slot"
)

type outcome string

const (
	succeeded outcome = "ok"
	failed    outcome = "failed"
	unknown   outcome = "unknown"
)

var (
	kinds    = []kind{acquire, release, lost, write}
	modes    = []mode{exclusive, shared, slotted}
	outcomes = []outcome{succeeded, failed, unknown}
)

const (
	// never is the return time of an operation that may take effect at any time after its call.
	never = math.MaxInt64
	// anySlot is the slot of an operation that names no slot.
	anySlot = -1
)

// record is the JSON of a line.
type record struct {
	Client  string  `json:"client"`
	Object  string  `json:"object"`
	Kind    kind    `json:"kind"`
	Token   *int64  `json:"token"`
	Mode    mode    `json:"mode"`
	Slots   int     `json:"slots"`
	Slot    *int    `json:"slot"`
	Call    *int64  `json:"call"`
	Return  *int64  `json:"return"`
	Outcome outcome `json:"outcome"`
}

// operation is a valid record.
type operation struct {
	client, object string
	kind           kind
	outcome        outcome
	// 0 if the operation has no token.
	token         int64
	mode          mode
	slots, slot   int
	call, return_ int64
	// Location of the record, as file:line.
	place string
}

// parse returns the operation of a line. The returned errors contain the remedy.
func parse(line []byte, place string) (*operation, error) {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil, errors.New("empty line; remove it")
	}
	var r record
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return nil, fmt.Errorf("%s; write one JSON object of the documented fields per line", jsonError(err))
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errors.New("text after the JSON object; write one object per line")
	}
	if err := r.validate(); err != nil {
		return nil, err
	}
	op := &operation{
		client: r.Client, object: r.Object, kind: r.Kind, outcome: r.Outcome, mode: r.Mode, slots: r.Slots,
		slot: anySlot, call: *r.Call, return_: never, place: place,
	}
	if r.Token != nil {
		op.token = *r.Token
	}
	if r.Slot != nil {
		op.slot = *r.Slot
	}
	if r.Return != nil && r.Outcome != unknown {
		op.return_ = *r.Return
	}
	return op, nil
}

// jsonError returns the text of an error without the name of the Go type.
func jsonError(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return fmt.Sprintf("%q cannot be a %s", wrong.Field, wrong.Value)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

func (r *record) validate() error {
	switch {
	case r.Client == "":
		return errors.New(`"client" is missing; name the process`)
	case r.Object == "":
		return errors.New(`"object" is missing; name the lock`)
	case !slices.Contains(kinds, r.Kind):
		return fmt.Errorf(`"kind" is %q; use one of %s`, r.Kind, join(kinds))
	case !slices.Contains(outcomes, r.Outcome):
		return fmt.Errorf(`"outcome" is %q; use one of %s`, r.Outcome, join(outcomes))
	case r.Call == nil || *r.Call < 0:
		return errors.New(`"call" is missing or negative; give nanoseconds of CLOCK_BOOTTIME`)
	case r.Return != nil && *r.Return < *r.Call:
		return fmt.Errorf(`"return" %d is before "call" %d; take both from CLOCK_BOOTTIME`, *r.Return, *r.Call)
	case r.Return != nil && *r.Return == never:
		return errors.New(`"return" is out of range; use null if it is not known`)
	case r.Token != nil && *r.Token < 1:
		return fmt.Errorf(`"token" is %d; tokens are positive`, *r.Token)
	case r.Slot != nil && *r.Slot < 0:
		return fmt.Errorf(`"slot" is %d; slots are counted from 0`, *r.Slot)
	}
	if r.Kind == acquire {
		return r.validateAcquisition()
	}
	switch {
	case r.Mode != "" && !slices.Contains(modes, r.Mode):
		return fmt.Errorf(`"mode" is %q; use one of %s`, r.Mode, join(modes))
	case r.Token == nil:
		return fmt.Errorf(`"token" is missing; a %s has the token of its acquisition`, r.Kind)
	case r.Kind == lost && r.Outcome == failed:
		return errors.New(`"outcome" of a lost lock is "failed"; use "ok"`)
	}
	return nil
}

func (r *record) validateAcquisition() error {
	switch {
	case !slices.Contains(modes, r.Mode):
		return fmt.Errorf(`"mode" is %q; use one of %s`, r.Mode, join(modes))
	case r.Mode == slotted && r.Slots < 1:
		return fmt.Errorf(`"slots" is %d; give the number of slots of the lock`, r.Slots)
	case r.Mode == slotted && r.Slot != nil && *r.Slot >= r.Slots:
		return fmt.Errorf(`"slot" is %d of %d; slots are counted from 0`, *r.Slot, r.Slots)
	case r.Mode != slotted && r.Slots != 0:
		return fmt.Errorf(`"slots" is %d in mode %q; use 0, or mode "slot"`, r.Slots, r.Mode)
	case r.Mode != slotted && r.Slot != nil:
		return fmt.Errorf(`"slot" is given in mode %q; leave it out, or use mode "slot"`, r.Mode)
	case r.Outcome == succeeded && r.Token == nil:
		return errors.New(`"token" is missing; an acquisition that succeeded has one`)
	case r.Outcome != succeeded && r.Token != nil:
		return fmt.Errorf(`"token" is given for outcome %q; an acquisition whose token is known is "ok", with "return" null if its end is not known`, r.Outcome)
	}
	return nil
}

func join[T ~string](values []T) string {
	var quoted []string
	for _, value := range values {
		quoted = append(quoted, fmt.Sprintf("%q", value))
	}
	return strings.Join(quoted, ", ")
}

// readFile returns the operations in a file. It skips an incomplete last line, because the writer
// may have been killed.
func readFile(path string, notes io.Writer) ([]*operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readHistory(file, path, notes)
}

func readHistory(source io.Reader, path string, notes io.Writer) ([]*operation, error) {
	var ops []*operation
	reader := bufio.NewReader(source)
	for number := 1; ; number++ {
		line, err := reader.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("cannot read %s: %w", path, err)
		}
		last := err == io.EOF
		if last && len(line) == 0 {
			return ops, nil
		}
		place := fmt.Sprintf("%s:%d", path, number)
		if last && !json.Valid(line) {
			fmt.Fprintf(notes, "linearizability: %s: skipped an incomplete last line\n", place)
			return ops, nil
		}
		op, err := parse(line, place)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", place, err)
		}
		ops = append(ops, op)
	}
}
