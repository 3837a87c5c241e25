package main

import (
	"math/rand"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// Much longer than a check of 20,000 operations takes on a busy machine.
const longMax = 30 * time.Second

// crowd returns a correct history of 16 clients that contend for a lock. Waits overlap, some
// holders are killed, and each holder writes once.
func crowd(count int, form func(token, call, return_ int64) *operation) []*operation {
	random := rand.New(rand.NewSource(1))
	var ops []*operation
	var s state
	waiting := make([]int64, 16)
	ends := make(map[int64]int64)
	now := int64(1_000)
	for len(ops) < count {
		now += 10
		client := random.Intn(len(waiting))
		op := form(s.granted+1, min(waiting[client], now), now+random.Int63n(40))
		next, err := s.step(&event{op: op})
		if err != nil || len(s.holders) == len(waiting) {
			// The oldest holder ends.
			h := s.holders[0]
			end := released(h.token, now-random.Int63n(10), now+random.Int63n(10))
			end.call = max(end.call, ends[h.token])
			end.return_ = max(end.return_, end.call)
			if random.Intn(10) == 0 {
				end.kind, end.return_ = lost, never
			}
			s, err = s.step(&event{op: end})
			if err != nil {
				panic(err)
			}
			ops = append(ops, end)
			now = max(now, end.call)
			continue
		}
		s = next
		// A holder may end only after its acquisition has returned.
		ends[op.token] = op.return_
		waiting[client] = op.return_
		effect := written(s.holders[random.Intn(len(s.holders))].token, now, now+random.Int63n(60))
		if effect.token < s.accepted {
			effect.outcome = failed
		}
		s, _ = s.step(&event{op: effect})
		if random.Intn(10) == 0 {
			unsure(effect)
		}
		ops = append(ops, op, effect)
	}
	return ops
}

func TestLongHistories(t *testing.T) {
	for name, form := range map[string]func(token, call, return_ int64) *operation{
		"exclusive": func(token, call, return_ int64) *operation {
			return acquired(token, call, return_)
		},
		"readers and writers": func(token, call, return_ int64) *operation {
			if token%4 == 0 {
				return acquired(token, call, return_)
			}
			return read(token, call, return_)
		},
		"slots": func(token, call, return_ int64) *operation {
			return slotOf(5, token, call, return_)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ops := crowd(20_000, form)
			begin := time.Now()
			if found := verdict(ops); found != porcupine.Ok {
				t.Errorf("%s", found)
			}
			t.Logf("%d operations: %s", len(ops), time.Since(begin))
			// Delays a release near the end of the history, so that it takes effect too late.
			for _, op := range ops[len(ops)-500:] {
				if op.kind == release {
					op.call, op.return_ = op.call+5_000, op.return_+5_000
					break
				}
			}
			begin = time.Now()
			var text strings.Builder
			for _, history := range partition(ops) {
				if history.check(longMax) == porcupine.Illegal {
					history.explain(longMax).describe(&text)
				}
			}
			t.Logf("the violation: %s", time.Since(begin))
			if !strings.Contains(text.String(), "must be next") || time.Since(begin) > longMax {
				t.Errorf("%s after %s", &text, time.Since(begin))
			}
		})
	}
}

func TestAHistoryThatIsNotCheckedInTimeIsUndecided(t *testing.T) {
	ops := crowd(20_000, func(token, call, return_ int64) *operation {
		return read(token, call, return_)
	})
	if found := partition(ops)[0].check(time.Nanosecond); found != porcupine.Unknown {
		t.Errorf("%s", found)
	}
}
