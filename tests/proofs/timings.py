#!/usr/bin/env python3
"""Prove the arithmetic of the timing rules with z3.

    timings.py            prove all statements, and show that each rule is needed

The clock rates, the instants and the durations are unknowns: a statement holds for
all values, not for samples. The script proves each statement by showing that its
negation has no solution. It also changes assumptions, one at a time ("without …"):
the negation must then have a solution, because the statement would otherwise not
depend on the assumption.

Time is true time in nanoseconds. A clock at rate r shows r × t, rounded down to a
nanosecond, so a duration measured with two readings is wrong by less than 1 ns.

`Timings::new` enforces the rules. crates/core/src/election/timings/arithmetic.rs checks
that the code accepts exactly the durations that satisfy them.

Exit codes: 0 if all statements are proved, 1 if one is not, 2 if z3 is missing.
"""

import sys

try:
    import z3
except ModuleNotFoundError:
    print("proofs: the Python module z3 is missing: make proofs fetches it", file=sys.stderr)
    sys.exit(2)

SECOND = 1_000_000_000
LEASE_MIN, LEASE_MAX = SECOND, 3600 * SECOND
INTERVAL_MIN = 50_000_000
TIMEOUT_MS = 60_000


class Statement:
    """A claim, and named assumptions that can be omitted or replaced."""

    def __init__(self, claim):
        self.claim = claim
        self.assumptions = {}
        self.needed = []

    def assume(self, name, *conditions):
        self.assumptions[name] = conditions

    def without(self, name, *instead):
        """Expect the claim to fail if `instead` replaces this assumption."""
        self.needed.append((name, instead))

    def counterexample(self, changed=None, instead=()):
        solver = z3.Solver()
        solver.set("timeout", TIMEOUT_MS)
        for name, conditions in self.assumptions.items():
            solver.add(*(instead if name == changed else conditions))
        solver.add(z3.Not(self.claim))
        return solver.check(), solver


def durations(statement):
    """Add six durations that satisfy the rules to a statement, and return them."""
    lease, deadline, renew, retry, operation, grace = z3.Ints(
        "lease_duration renew_deadline renew_interval retry_interval operation_timeout loss_grace"
    )
    statement.assume("intervals", *(d >= INTERVAL_MIN for d in (renew, retry, operation)))
    statement.assume("lease", LEASE_MIN <= lease, lease <= LEASE_MAX)
    statement.assume("grace", grace >= 0)
    # `Duration` rounds quotients down, so use integer division.
    budget = (renew + retry) * 120 / 100 + 2 * operation
    statement.assume("second attempt", budget <= deadline)
    statement.assume("chain", (deadline + grace) * 11 / 10 + SECOND // 2 <= lease)
    return lease, deadline, renew, retry, operation, grace


def reads(statement, name, rate, begin, end):
    """Return the time between two instants on a clock with this rate."""
    rounding = z3.Real(f"rounding of {name}")
    statement.assume(f"rounding of {name}", -1 < rounding, rounding < 1)
    return rate * (end - begin) + rounding


def takeover(statement, lease):
    """Add a renewal and a takeover after it.

    Return the rates of both clocks, and when the renewal was sent and applied and the
    takeover happened.
    """
    holder, observer = z3.Reals("holder observer")
    sent, applied, seen, taken = z3.Reals("sent applied seen taken")
    statement.assume("rates are positive", holder > 0, observer > 0)
    statement.assume("a write follows its send", applied >= sent)
    statement.assume("a revision is seen after it was written", seen >= applied)
    waited = reads(statement, "the wait", observer, seen, taken)
    statement.assume("the wait is the declared duration", waited >= lease, taken >= seen)
    return holder, observer, sent, applied, taken


def authority_has_ended():
    """I1: a contender takes over only after the holder's authority has ended."""
    s = Statement(None)
    lease, deadline, *_ = durations(s)
    holder, observer, sent, applied, taken = takeover(s, lease)
    ended, answered = z3.Reals("ended answered")
    s.assume("the answer follows the write", answered >= applied)
    counted = reads(s, "authority", holder, sent, ended)
    s.assume("authority is counted from the send", counted <= deadline, ended >= sent)
    # The rules allow clock rates up to the ratio of the durations, with an allowance for rounding.
    ratio = observer * (deadline + 1) <= holder * (lease - 1)
    s.assume("ratio of the rates", ratio)
    s.claim = taken >= ended
    late = reads(s, "authority", holder, answered, ended)
    s.without("authority is counted from the send", late <= deadline, ended >= answered)
    s.without("ratio of the rates", observer <= 2 * holder)
    waited = reads(s, "the wait", observer, sent, taken)
    s.without("the wait is the declared duration", waited >= deadline, taken >= sent)
    s.without("a revision is seen after it was written")
    return s


def any_rates_within_a_tenth():
    """The rules admit clocks whose rates differ by a tenth, for all accepted durations."""
    s = Statement(None)
    lease, deadline, *_ = durations(s)
    holder, observer = z3.Reals("holder observer")
    s.assume("rates", holder > 0, observer > 0, 10 * observer <= 11 * holder)
    s.claim = observer * (deadline + 1) <= holder * (lease - 1)
    s.without("chain", deadline <= lease)
    s.without("rates", holder > 0, observer > 0, observer <= 2 * holder)
    return s


def child_has_gone():
    """I5: the holder's child exits some time before the next child can start."""
    s = Statement(None)
    lease, deadline, *_, grace = durations(s)
    holder, observer, sent, applied, taken = takeover(s, lease)
    killed = z3.Real("killed")
    lived = reads(s, "the life of the child", holder, sent, killed)
    s.assume("the guard kills", lived <= deadline + grace, killed >= sent)
    s.assume("ratio of the rates", 10 * observer <= 11 * holder)
    # The rule reserves half a second on the observer's clock, less rounding, for the signal and the
    # scheduler.
    spare = SECOND // 2 - 4
    s.claim = observer * (taken - killed) >= spare
    s.without("chain", deadline + grace <= lease)
    s.without("the guard kills", lived <= deadline + 2 * grace, killed >= sent)
    s.without("ratio of the rates", 10 * observer <= 12 * holder)
    return s


def a_second_attempt():
    """After a renewal without an answer, a second renewal fits before the deadline."""
    s = Statement(None)
    _, deadline, renew, retry, operation, _ = durations(s)
    first, second = z3.Reals("first second")
    s.assume("a renewal is sent in its interval", 0 <= first, 100 * first <= 120 * renew)
    resolved = first + operation
    s.assume("a retry follows", resolved <= second, 100 * (second - resolved) <= 120 * retry)
    # Each of the two divisions rounds down by less than a nanosecond.
    s.claim = second + operation <= deadline + 1
    s.without("second attempt", (renew + retry) * 120 / 100 + operation <= deadline)
    s.without("a retry follows", resolved <= second, second - resolved <= 2 * retry)
    return s


def an_election_of_the_store():
    """A leader survives a gap without writes if its deadline is `renew_deadline_for(gap)`."""
    s = Statement(None)
    _, deadline, _, retry, operation, _ = durations(s)
    gap, margin = z3.Ints("gap margin")
    last, retried, acknowledged = z3.Reals("last retried acknowledged")
    s.assume("gap", gap >= 0, margin >= 0)
    s.assume("warned otherwise", gap + operation + retry * 120 / 100 + margin <= deadline)
    s.assume("an attempt in the gap gets no answer", 0 <= last, last <= gap)
    resolved = last + operation
    s.assume("a retry follows", resolved <= retried, 100 * (retried - resolved) <= 120 * retry)
    s.assume("the new primary answers", retried <= acknowledged, acknowledged <= retried + margin)
    s.claim = acknowledged <= deadline + 1
    s.without("warned otherwise", gap <= deadline)
    return s


def a_place_of_a_lock():
    """A lock's entry is removed only after its owner's authority ends, even with a minimum hold."""
    s = Statement(None)
    lease, deadline, *_ = durations(s)
    rest = z3.Int("at_least")
    longest = z3.If(rest > lease, rest, lease)
    holder, observer, sent, _, removed = takeover(s, longest)
    ended, granted = z3.Reals("ended granted")
    s.assume("minimum hold", rest >= 0)
    # The grant names a revision that the grantee sent before the grant.
    s.assume("the grant is written after the revision that it names", granted >= sent)
    counted = reads(s, "authority", holder, sent, ended)
    s.assume("authority is counted from the send", counted <= deadline, ended >= sent)
    s.assume("ratio of the rates", 10 * observer <= 11 * holder)
    s.claim = removed >= ended
    late = reads(s, "authority", holder, granted, ended)
    s.without("authority is counted from the send", late <= deadline, ended >= granted)
    return s


def nothing_overflows():
    """Until 146 years after boot, no sum of durations wraps or saturates."""
    s = Statement(None)
    now, lease, others = z3.BitVecs("now lease others", 64)
    # A reservation lasts at most 60 s plus three head starts plus 0.2 s of jitter. Two calls with
    # their retries take less than the deadline, so the sum of all durations is below three leases
    # and 61 s.
    more = 61 * SECOND
    s.assume("now", z3.ULT(now, 1 << 62))
    s.assume("lease", z3.ULE(lease, LEASE_MAX))
    s.assume("others", z3.ULE(others, more))
    parts = [lease, lease, lease, others]
    sums, carries = now, []
    for part in parts:
        carries.append(z3.BVAddNoOverflow(sums, part, False))
        sums = sums + part
    s.claim = z3.And(*carries)
    s.without("now")
    s.without("lease")
    return s


def deadlines_are_monotone():
    """A later renewal never has an earlier deadline, even if an addition saturates."""
    s = Statement(None)
    first, second, deadline = z3.BitVecs("first second deadline", 64)
    top = z3.BitVecVal((1 << 64) - 1, 64)

    def saturating(a, b):
        return z3.If(z3.BVAddNoOverflow(a, b, False), a + b, top)

    s.assume("order", z3.ULE(first, second))
    s.assume("saturation")
    s.claim = z3.ULE(saturating(first, deadline), saturating(second, deadline))
    s.without("order")
    return s


STATEMENTS = [
    authority_has_ended,
    any_rates_within_a_tenth,
    child_has_gone,
    a_second_attempt,
    an_election_of_the_store,
    a_place_of_a_lock,
    nothing_overflows,
    deadlines_are_monotone,
]


def main():
    failed = 0
    for make in STATEMENTS:
        statement = make()
        found, solver = statement.counterexample()
        proved = found == z3.unsat
        print(f"{'proved' if proved else 'NOT PROVED'}: {make.__doc__}")
        if not proved:
            failed += 1
            print(f"    {found}: {solver.model() if found == z3.sat else solver.reason_unknown()}")
        for name, instead in statement.needed:
            found, _ = statement.counterexample(name, instead)
            needed = found == z3.sat
            failed += not needed
            print(f"    {'fails' if needed else 'NOT SHOWN TO FAIL'} with another rule: {name}")
    print(f"proofs: {len(STATEMENTS)} statements, {failed} failures")
    sys.exit(1 if failed else 0)


main()
