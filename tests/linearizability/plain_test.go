package main

import (
	"math/rand"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"
)

// plain implements the rules without any reduction. A lock and its fence are one object. An
// operation with an unknown outcome may or may not take effect. An acquisition with an unknown
// outcome may take any hidden token, that is, any token that no other operation has.
func plain(hidden []int64) porcupine.Model {
	step := func(before, input, _ any) []any {
		s, op := before.(state), input.(*operation)
		next, err := s.step(&event{op: op})
		switch {
		case op.kind == acquire && op.outcome == unknown:
			found := []any{s}
			for _, token := range hidden {
				taken := *op
				taken.token = token
				if next, err := s.step(&event{op: &taken}); err == nil {
					found = append(found, next)
				}
			}
			return found
		case op.kind != write && op.outcome == failed:
			return []any{s}
		case op.kind == lost && err == nil:
			return []any{next}
		case op.outcome == unknown && err == nil:
			return []any{s, next}
		case op.outcome == unknown && op.kind != lost:
			return []any{s}
		case err != nil:
			return nil
		}
		return []any{next}
	}
	nondeterministic := porcupine.NondeterministicModel{
		Init:  func() []any { return []any{state{}} },
		Step:  step,
		Equal: func(a, b any) bool { return a.(state).equal(b.(state)) },
	}
	return nondeterministic.ToModel()
}

// randomRun returns a history of a correct lock whose tokens are odd numbers.
func randomRun(random *rand.Rand) []*operation {
	var ops []*operation
	var s state
	slots := random.Intn(3)
	// The instant at which the next operation takes effect, between its call and its return.
	at := int64(100)
	width := int64(1 + random.Intn(60))
	near := func(op *operation) *operation {
		op.call = at - random.Int63n(width)
		op.return_ = at + random.Int63n(width)
		return op
	}
	for range 3 + random.Intn(7) {
		at += 1 + random.Int63n(20)
		var op *operation
		switch choice := random.Intn(10); {
		case choice < 4:
			op = near(acquired(s.granted+1+s.granted%2, 0, 0))
			switch {
			case slots > 0:
				op.mode, op.slots = slotted, slots
				if random.Intn(2) == 0 {
					op.slot = random.Intn(slots)
				}
			case random.Intn(2) == 0:
				op.mode = shared
			}
		case choice < 7 && len(s.holders) > 0:
			op = near(released(s.holders[random.Intn(len(s.holders))].token, 0, 0))
			if random.Intn(3) == 0 {
				op.kind, op.return_ = lost, never
			}
		default:
			op = near(written(1+random.Int63n(s.granted+2), 0, 0))
			if op.token < s.accepted {
				op.outcome = failed
			}
		}
		next, err := s.step(&event{op: op})
		if err != nil {
			continue
		}
		s = next
		switch random.Intn(8) {
		case 0:
			ops = append(ops, unsure(op))
		case 1:
			op.return_ = never
			fallthrough
		default:
			ops = append(ops, op)
		}
	}
	return ops
}

// disturb changes or repeats one operation.
func disturb(random *rand.Rand, ops []*operation) []*operation {
	if len(ops) == 0 {
		return ops
	}
	op := ops[random.Intn(len(ops))]
	switch random.Intn(6) {
	case 0:
		if op.token > 0 {
			op.token = max(1, op.token+2*random.Int63n(4)-4)
		}
	case 1:
		by := random.Int63n(121) - 60
		op.call += by
		if op.return_ != never {
			op.return_ += by
		}
	case 2:
		if op.kind != lost {
			*op = *refused(op)
		}
	case 3:
		if op.kind == release {
			op.kind, op.return_, op.outcome = lost, never, succeeded
		}
	case 4:
		op.mode, op.slots, op.slot = exclusive, 0, anySlot
	case 5:
		again := *op
		if by := random.Int63n(60); again.return_ == never {
			again.call += by
		}
		ops = append(ops, &again)
	}
	return ops
}

func TestReductionsAgreeWithThePlainRules(t *testing.T) {
	hidden := []int64{2, 4, 6, 8, 10, 12}
	seen := make(map[porcupine.CheckResult]int)
	for seed := range int64(60_000) {
		random := rand.New(rand.NewSource(seed))
		ops := randomRun(random)
		for range random.Intn(3) {
			ops = disturb(random, ops)
		}
		random.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
		var raw []porcupine.Operation
		for _, op := range ops {
			raw = append(raw, porcupine.Operation{Input: op, Call: op.call, Return: op.return_})
		}
		expected := porcupine.CheckOperationsTimeout(plain(hidden), raw, soon)
		seen[expected]++
		if found := verdict(ops); found != expected {
			slices.SortFunc(ops, func(a, b *operation) int { return int(a.call - b.call) })
			for _, op := range ops {
				t.Logf("%s  %s", interval(op, 0), op)
			}
			t.Fatalf("seed %d: %s, by the plain rules %s", seed, found, expected)
		}
	}
	t.Logf("%v", seen)
	if seen[porcupine.Ok] < 6_000 || seen[porcupine.Illegal] < 6_000 || seen[porcupine.Unknown] > 0 {
		t.Errorf("%v", seen)
	}
}
