package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

const soon = 10 * time.Second

// Helpers that create operations. Each client holds the lock once and is named after its token.

func acquired(token, call, return_ int64) *operation {
	return &operation{
		client: fmt.Sprintf("c%d", token), object: "nightly", kind: acquire, outcome: succeeded,
		token: token, mode: exclusive, slot: anySlot, call: call, return_: return_, place: "history:1",
	}
}

func read(token, call, return_ int64) *operation {
	op := acquired(token, call, return_)
	op.mode = shared
	return op
}

func slotOf(slots int, token, call, return_ int64) *operation {
	op := acquired(token, call, return_)
	op.mode, op.slots = slotted, slots
	return op
}

func numbered(slot int, op *operation) *operation {
	op.slot = slot
	return op
}

func released(token, call, return_ int64) *operation {
	op := acquired(token, call, return_)
	op.kind, op.mode = release, ""
	return op
}

func killed(token, call int64) *operation {
	op := released(token, call, never)
	op.kind = lost
	return op
}

func written(token, call, return_ int64) *operation {
	op := released(token, call, return_)
	op.kind = write
	return op
}

func refused(op *operation) *operation {
	op.outcome = failed
	if op.kind == acquire {
		op.token = 0
	}
	return op
}

func unsure(op *operation) *operation {
	op.outcome, op.return_ = unknown, never
	if op.kind == acquire {
		op.token = 0
	}
	return op
}

func verdict(ops []*operation) porcupine.CheckResult {
	for _, history := range partition(ops) {
		if found := history.check(soon); found != porcupine.Ok {
			return found
		}
	}
	return porcupine.Ok
}

func TestHistoriesOfACorrectLock(t *testing.T) {
	for name, ops := range map[string][]*operation{
		"one holder after another": {
			acquired(1, 0, 10), released(1, 20, 30), acquired(2, 5, 28), released(2, 40, 50),
		},
		"the next acquisition is granted before the release returns": {
			acquired(1, 0, 10), acquired(2, 5, 22), released(1, 20, 30),
		},
		"a gap in the tokens": {
			acquired(1, 0, 10), released(1, 20, 30), acquired(7, 40, 50),
		},
		"an acquisition with an unknown outcome before a gap": {
			acquired(1, 0, 10), released(1, 20, 30), unsure(acquired(0, 32, 0)), acquired(3, 60, 70),
		},
		"a failed acquisition": {
			acquired(1, 0, 10), refused(acquired(0, 2, 5)), refused(acquired(0, 12, 15)), released(1, 20, 30),
		},
		"a killed holder": {
			acquired(1, 0, 10), killed(1, 15), acquired(2, 12, 40),
		},
		"a release with an unknown outcome": {
			acquired(1, 0, 10), unsure(released(1, 15, 0)), acquired(2, 12, 40),
		},
		"a release with an unknown outcome before the loss": {
			acquired(1, 0, 10), unsure(released(1, 15, 0)), killed(1, 20), acquired(2, 12, 40),
		},
		"two releases with unknown outcomes": {
			acquired(1, 0, 10), unsure(released(1, 15, 0)), unsure(released(1, 50, 0)), acquired(2, 12, 40),
		},
		"an acquisition that succeeded at an unknown time": {
			acquired(1, 0, never), killed(1, 20), acquired(2, 12, 40),
		},
		"a failed release": {
			acquired(1, 0, 10), refused(released(1, 12, 14)), killed(1, 20), acquired(2, 12, 40),
		},
		"readers whose replies are out of order": {
			read(2, 0, 10), read(1, 0, 20), released(2, 30, 40), released(1, 30, 40), acquired(3, 5, 50),
		},
		"slots whose replies are out of order": {
			slotOf(2, 3, 0, 10), slotOf(2, 2, 0, 11), released(2, 20, 30), slotOf(2, 4, 5, 40), released(3, 50, 60),
		},
		"numbered slots": {
			numbered(0, slotOf(2, 1, 0, 10)), numbered(1, slotOf(2, 2, 0, 10)), released(1, 20, 30), numbered(0, slotOf(2, 3, 0, 40)),
		},
		"a different number of slots after the lock was free": {
			slotOf(2, 1, 0, 10), released(1, 20, 30), slotOf(3, 2, 40, 50),
		},
		"fenced writes": {
			written(1, 0, 10), written(1, 20, 30), written(2, 25, 40), refused(written(1, 50, 60)), written(2, 70, 80),
		},
		"a write is refused because of a write in flight": {
			written(2, 0, 100), refused(written(1, 10, 20)),
		},
		"a write is refused because of a write with an unknown outcome": {
			unsure(written(2, 0, 0)), refused(written(1, 10, 20)), written(2, 30, 40),
		},
		"a write with an unknown outcome and no effect": {
			unsure(written(2, 0, 0)), written(1, 10, 20),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if found := verdict(ops); found != porcupine.Ok {
				t.Errorf("%s", found)
			}
		})
	}
}

func TestPlantedViolations(t *testing.T) {
	for name, c := range map[string]struct {
		reason error
		ops    []*operation
	}{
		"two exclusive holders": {errHeld, []*operation{
			acquired(1, 0, 10), acquired(2, 12, 15), released(1, 20, 30), released(2, 40, 50),
		}},
		"two exclusive holders that never release": {errHeld, []*operation{
			acquired(1, 0, 10), acquired(2, 0, 10),
		}},
		"a token is used twice": {errToken, []*operation{
			acquired(1, 0, 10), released(1, 20, 30), acquired(1, 40, 50),
		}},
		"two readers with one token": {errToken, []*operation{read(1, 0, 10), read(1, 0, 10)}},
		"a token decreases": {errOrder, []*operation{
			acquired(5, 0, 10), released(5, 20, 30), acquired(4, 40, 50),
		}},
		"a reader's token decreases": {errOrder, []*operation{read(5, 0, 10), read(4, 11, 20)}},
		"a slot's token decreases":   {errOrder, []*operation{slotOf(3, 5, 0, 10), slotOf(3, 4, 11, 20)}},
		"more holders than slots": {errNoSlot, []*operation{
			slotOf(2, 1, 0, 10), slotOf(2, 2, 0, 10), slotOf(2, 3, 12, 15), released(1, 20, 30),
		}},
		"two holders of one slot": {errSameSlot, []*operation{
			numbered(1, slotOf(3, 1, 0, 10)), numbered(1, slotOf(3, 2, 0, 10)),
		}},
		"holders with different numbers of slots": {errSlots, []*operation{slotOf(2, 1, 0, 10), slotOf(3, 2, 12, 15)}},
		"a reader joins a writer": {errMode, []*operation{
			acquired(1, 0, 10), read(2, 12, 15), released(1, 20, 30),
		}},
		"a writer joins a reader": {errHeld, []*operation{
			read(1, 0, 10), acquired(2, 12, 15), released(1, 20, 30),
		}},
		"a reader joins a slot holder": {errMode, []*operation{slotOf(2, 1, 0, 10), read(2, 12, 15)}},
		"a release without an acquisition": {errNotHeld, []*operation{
			acquired(1, 0, 10), released(2, 20, 30),
		}},
		"a release before the acquisition": {errNotHeld, []*operation{
			released(1, 0, 10), acquired(1, 20, 30),
		}},
		"a holder ends twice": {errNotHeld, []*operation{
			acquired(1, 0, 10), released(1, 20, 30), killed(1, 40),
		}},
		"a holder is killed after the next acquisition": {errHeld, []*operation{
			acquired(1, 0, 10), acquired(2, 12, 20), killed(1, 30),
		}},
		"a release with an unknown outcome begins after the next acquisition": {errHeld, []*operation{
			acquired(1, 0, 10), acquired(2, 12, 20), unsure(released(1, 30, 0)),
		}},
		"a failed release does not end a holder": {errHeld, []*operation{
			acquired(1, 0, 10), refused(released(1, 11, 12)), acquired(2, 14, 20),
		}},
		"a write is accepted after a newer write": {errFenced, []*operation{
			written(1, 0, 10), written(2, 20, 30), written(1, 40, 50),
		}},
		"a write is refused without a newer write": {errRefused, []*operation{
			written(2, 0, 10), refused(written(2, 20, 30)),
		}},
		"a write is refused before a newer write": {errRefused, []*operation{
			refused(written(1, 0, 10)), written(2, 20, 30),
		}},
		"a write is refused before a newer write with an unknown outcome": {errRefused, []*operation{
			refused(written(1, 0, 10)), unsure(written(2, 20, 0)),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var found []violation
			for _, history := range partition(c.ops) {
				if history.check(soon) == porcupine.Illegal {
					found = append(found, history.explain(soon))
				}
			}
			if len(found) != 1 {
				t.Fatalf("%d violations", len(found))
			}
			var text strings.Builder
			found[0].describe(&text)
			// porcupine may get stuck at either operation, so either reason is accepted.
			if !strings.Contains(text.String(), c.reason.Error()) {
				t.Errorf("no reason %q in\n%s", c.reason, &text)
			}
		})
	}
}

func TestAViolationShowsItsSurroundings(t *testing.T) {
	var ops []*operation
	for token := int64(1); token <= 1000; token++ {
		at := 1000 * token
		ops = append(ops, acquired(token, at, at+100), released(token, at+500, at+600))
	}
	// Holder 700 relies on the lock until it is killed. At that time, 701 already holds the lock.
	ops[2*699+1] = killed(700, 701_300)
	h := partition(ops)[0]
	v := h.explain(soon)
	if v.stuck.op.token != 701 || v.stuck.op.kind != acquire || len(v.ordered) != 2*699+1 {
		t.Errorf("%s after %d", v.stuck.op, len(v.ordered))
	}
	var text strings.Builder
	v.describe(&text)
	for _, part := range []string{
		"nightly: not linearizable (times since 0.000001 s of CLOCK_BOOTTIME)\n",
		"ordered: 1399 of 2000 operations",
		"state: held with token 700 (exclusive), highest token 700",
		"0.000700 to 0.000700 s  acquire token 701 (exclusive) by c701: ok",
		"not legal here: the lock is held",
		"0.000700 s or later  lost token 700 by c700: ok",
	} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("no %q in\n%s", part, &text)
		}
	}
	if lines := strings.Count(text.String(), "\n"); lines > 20 {
		t.Errorf("%d lines:\n%s", lines, &text)
	}
}
