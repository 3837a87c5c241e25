package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// state is the state, between two operations, of a lock and of the resource that its tokens fence.
//
// In every mode, an acquisition takes effect when a write to the lock's document assigns its token.
// This happens between the join and the reply that shows the grant. Tokens therefore grow for
// readers and slots too, although their replies may arrive in another order.
type state struct {
	// The holders, sorted by token.
	holders []holder
	// The highest token of an acquisition.
	granted int64
	// The highest token of an accepted write.
	accepted int64
}

type holder struct {
	token       int64
	mode        mode
	slots, slot int
}

var (
	errToken    = errors.New("its token is not higher than all tokens before it")
	errOrder    = errors.New("a lower token has not been acquired yet")
	errHeld     = errors.New("the lock is held")
	errMode     = errors.New("the lock is held in another mode")
	errSlots    = errors.New("the lock is held with another number of slots")
	errNoSlot   = errors.New("all slots are held")
	errSameSlot = errors.New("its slot is held")
	errNotHeld  = errors.New("no holder has its token")
	errFenced   = errors.New("it was accepted after a write with a higher token")
	errRefused  = errors.New("it was refused, and no write with a higher token was accepted before it")
	errLowWrite = errors.New("an accepted write with a lower token has not taken effect yet")
)

// step returns the state after an operation, or the reason why the operation is not legal.
func (s state) step(e *event) (state, error) {
	switch op := e.op; op.kind {
	case acquire:
		if err := s.admits(e); err != nil {
			return s, err
		}
		s.holders = append(slices.Clip(s.holders), holder{op.token, op.mode, op.slots, op.slot})
		s.granted = op.token
	case release, lost:
		at := slices.IndexFunc(s.holders, func(h holder) bool { return h.token == op.token })
		if at < 0 {
			return s, errNotHeld
		}
		s.holders = slices.Delete(slices.Clone(s.holders), at, at+1)
	case write:
		return s.write(e)
	}
	return s, nil
}

// admits returns nil if an acquisition is legal.
func (s state) admits(e *event) error {
	op := e.op
	switch {
	case op.token <= s.granted:
		return errToken
	case s.granted < e.after:
		return errOrder
	case len(s.holders) == 0:
		return nil
	case op.mode == exclusive:
		return errHeld
	case s.holders[0].mode != op.mode:
		return errMode
	case op.mode == shared:
		return nil
	case s.holders[0].slots != op.slots:
		return errSlots
	case len(s.holders) >= op.slots:
		return errNoSlot
	case op.slot != anySlot && slices.ContainsFunc(s.holders, func(h holder) bool { return h.slot == op.slot }):
		return errSameSlot
	}
	return nil
}

// write returns the state after a fenced write. A write with an unknown outcome is always legal,
// and takes effect if its token is at least the highest accepted token.
func (s state) write(e *event) (state, error) {
	accepted := e.op.token >= s.accepted
	switch {
	case e.op.outcome == succeeded && !accepted:
		return s, errFenced
	case e.op.outcome == succeeded && s.accepted < e.after:
		return s, errLowWrite
	case e.op.outcome == failed && accepted:
		return s, errRefused
	}
	s.accepted = max(s.accepted, e.op.token)
	return s, nil
}

func (s state) equal(other state) bool {
	return s.granted == other.granted && s.accepted == other.accepted && slices.Equal(s.holders, other.holders)
}

func (s state) String() string {
	var parts []string
	for _, h := range s.holders {
		parts = append(parts, "held with "+h.String())
	}
	if len(parts) == 0 && s.accepted == 0 {
		parts = append(parts, "free")
	}
	if s.granted > 0 {
		parts = append(parts, fmt.Sprintf("highest token %d", s.granted))
	}
	if s.accepted > 0 {
		parts = append(parts, fmt.Sprintf("highest accepted token %d", s.accepted))
	}
	return strings.Join(parts, ", ")
}

func (h holder) String() string {
	switch {
	case h.mode == slotted && h.slot != anySlot:
		return fmt.Sprintf("token %d (slot %d of %d)", h.token, h.slot, h.slots)
	case h.mode == slotted:
		return fmt.Sprintf("token %d (one of %d slots)", h.token, h.slots)
	}
	return fmt.Sprintf("token %d (%s)", h.token, h.mode)
}

func (op *operation) String() string {
	var what string
	switch {
	case op.kind == acquire && op.token == 0:
		what = fmt.Sprintf("acquire %s", op.mode)
	case op.kind == acquire:
		what = "acquire " + holder{op.token, op.mode, op.slots, op.slot}.String()
	default:
		what = fmt.Sprintf("%s token %d", op.kind, op.token)
	}
	return fmt.Sprintf("%s by %s: %s", what, op.client, op.outcome)
}

// modelFrom returns porcupine's model of a lock that begins in a state.
func modelFrom(first state) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return first },
		Step: func(before, input, _ any) (bool, any) {
			after, err := before.(state).step(input.(*event))
			return err == nil, after
		},
		Equal:                     func(a, b any) bool { return a.(state).equal(b.(state)) },
		DescribeOperation:         func(input, _ any) string { return input.(*event).op.String() },
		DescribeState:             func(s any) string { return s.(state).String() },
		DescribeOperationMetadata: func(place any) string { return place.(string) },
	}
}
