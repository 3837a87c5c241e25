package main

import (
	"cmp"
	"math"
	"slices"
)

// event is an operation that porcupine must order, at an instant from `from` to `until`.
type event struct {
	op          *operation
	from, until int64
	// The next lower token, or 0 if there is none. It must take effect before this token, because only
	// an order by tokens can include all operations.
	after int64
}

// reduceLock returns events that can be ordered if and only if the operations of a lock, except
// writes, can be ordered. The events leave porcupine few choices, so the check of a long history is
// fast.
//
//   - Failed operations have no effect. An acquisition with an unknown outcome can be left out too,
//     because it may have no effect, and its effect would not make other operations legal.
//   - A holder may end as early as possible: at its call, if it was acquired before that. An early
//     end allows at least as many operations as a later end. The end of a lost holder, and a
//     release with an unknown outcome, can therefore be treated like a release. If
//     something else ended the token, a release with an unknown outcome had no effect, because a
//     token ends only once. If a token has several such releases, the earliest allows the most
//     operations.
//   - Acquisitions take effect in the order of their tokens.
func reduceLock(ops []*operation) []*event {
	acquired := make(map[int64]*operation)
	// The certain end of each token or, without a certain end, its earliest release with an unknown
	// outcome.
	ended := make(map[int64]*operation)
	var events []*event
	for _, op := range ops {
		switch {
		case op.outcome == failed, op.kind == write:
		case op.kind == acquire && op.outcome == succeeded:
			acquired[op.token] = op
			events = append(events, &event{op: op, from: op.call, until: op.return_})
		case op.kind == release && op.outcome == unknown:
			if end := ended[op.token]; end == nil || uncertain(end) && op.call < end.call {
				ended[op.token] = op
			}
		case op.kind != acquire:
			ended[op.token] = op
		}
	}
	for _, op := range ops {
		begin := acquired[op.token]
		switch {
		case op.outcome == failed, op.kind != release && op.kind != lost:
			continue
		case uncertain(op) && (ended[op.token] != op || begin == nil):
			continue
		}
		end := &event{op: op, from: op.call, until: op.return_}
		if begin != nil && begin.return_ <= op.call {
			end.until = end.from
		}
		events = append(events, end)
	}
	orderByToken(events, acquire)
	return events
}

// uncertain reports whether an end may have had no effect.
func uncertain(op *operation) bool { return op.kind == release && op.outcome == unknown }

// reduceFence returns events that can be ordered if and only if the fenced writes can be ordered.
//
//   - Accepted writes take effect in the order of their tokens.
//   - A refused write has no effect, and the highest accepted token only grows. A refused write
//     therefore allows the most operations if it takes place at its return, the latest possible
//     time.
//   - If several writes with an unknown outcome have one token, the earliest write allows the most
//     operations. It takes effect as soon as all accepted writes with lower tokens may have taken
//     effect, because an early effect explains at least as many refusals as a later effect.
func reduceFence(ops []*operation) []*event {
	var events []*event
	earliest := make(map[int64]*operation)
	for _, op := range ops {
		switch {
		case op.kind != write:
		case op.outcome == succeeded:
			events = append(events, &event{op: op, from: op.call, until: op.return_})
		case op.outcome == failed:
			events = append(events, &event{op: op, from: op.return_, until: op.return_})
		default:
			if found := earliest[op.token]; found == nil || op.call < found.call {
				earliest[op.token] = op
			}
		}
	}
	accepted := orderByToken(events, write)
	for _, op := range ops {
		if op.kind != write || earliest[op.token] != op {
			continue
		}
		at := op.call
		if lower := below(accepted, op.token); lower >= 0 {
			at = max(at, accepted[lower].latest)
		}
		events = append(events, &event{op: op, from: at, until: at})
	}
	return events
}

// floor is a token, and the latest call of any operation with this token or a lower token.
type floor struct{ token, latest int64 }

// orderByToken sets, for each successful operation of a kind, the lower token that must take effect
// first. It returns the tokens in ascending order.
func orderByToken(events []*event, kind kind) []floor {
	var floors []floor
	for _, e := range events {
		if e.op.kind == kind && e.op.outcome == succeeded {
			floors = append(floors, floor{e.op.token, e.from})
		}
	}
	slices.SortFunc(floors, func(a, b floor) int { return cmp.Compare(a.token, b.token) })
	latest := int64(math.MinInt64)
	for i := range floors {
		latest = max(latest, floors[i].latest)
		floors[i].latest = latest
	}
	for _, e := range events {
		if e.op.kind == kind && e.op.outcome == succeeded {
			if lower := below(floors, e.op.token); lower >= 0 {
				e.after = floors[lower].token
			}
		}
	}
	return floors
}

// below returns the index of the last floor with a lower token, or −1.
func below(floors []floor, token int64) int {
	at, _ := slices.BinarySearchFunc(floors, token, func(f floor, token int64) int { return cmp.Compare(f.token, token) })
	return at - 1
}
