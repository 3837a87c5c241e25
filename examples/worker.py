# worker.py
"""Ships one order per second while this replica leads."""

import fcntl
import json
import os
import sys
import time
from pathlib import Path

# `leasehold run -- CMD` sets the variable. A sidecar's workload passes the path as an argument.
STATUS = Path(os.environ.get("LEASEHOLD_STATUS_FILE") or sys.argv[1])
LEDGER = os.environ.get("LEDGER", "ledger.txt")


def leadership():
    """Returns the name of this replica and its token while it leads, otherwise None."""
    try:
        status = json.loads(STATUS.read_text())
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, ValueError):
        return None
    valid = status["leader"] and status["boot_id"] == boot_id
    # Read the clock after the file: the process may have been frozen in between.
    if not valid or status["valid_until_boottime_ns"] <= time.clock_gettime_ns(time.CLOCK_BOOTTIME):
        return None
    return status["identity"], status["token"]


def ship(name, token):
    """Appends one order. The ledger stands for a database that refuses the token of a former leader."""
    with open(LEDGER, "a+") as ledger:
        fcntl.flock(ledger, fcntl.LOCK_EX)
        ledger.seek(0)
        orders = ledger.read().splitlines()
        if orders and int(orders[-1].split()[-1]) > token:
            raise SystemExit(f"{name}: token {token} is refused: a newer leader has written")
        print(f"order {len(orders) + 1}: shipped by {name}, token {token}", file=ledger, flush=True)


def main():
    led = None
    while True:
        leads = leadership()
        if leads != led:
            print(f"leading as {leads[0]}, token {leads[1]}" if leads else "waiting", flush=True)
            led = leads
        if leads:
            ship(*leads)
        time.sleep(1)


if __name__ == "__main__":
    main()
