"""Stands in for Argo's emissary, the first process of a step's container; what it does was read in Argo 4's source.

    emissary_stand_in.py SECONDS LAUNCHER ...

It starts the launcher in a process group of its own and hands every signal on to that group. When the launcher has
ended the container is over, whoever else still runs in it. Argo's looks for that once a second, so what was told to
stop lives on for anything up to a second; here SECONDS says for how long, if it does not end before.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

KEPT = {signal.SIGCHLD, signal.SIGURG, signal.SIGKILL, signal.SIGSTOP}


def main() -> int:
    """Run the launcher and return how it ended, as a shell would say it."""
    sys.stdout.write(f"emissary: began {age():.3f} s ago\n")
    sys.stdout.flush()
    launcher, told_at = subprocess.Popen(sys.argv[2:], process_group=0), []

    def hand_on(number: int, _: object) -> None:
        told_at.append(time.monotonic())
        with contextlib.suppress(ProcessLookupError):
            os.killpg(launcher.pid, number)

    for number in signal.valid_signals() - KEPT:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, hand_on)
    while (ended := os.waitpid(-1, os.WNOHANG))[0] != launcher.pid:
        time.sleep(0.05)
    while told_at and time.monotonic() < told_at[0] + float(sys.argv[1]) and is_left(launcher.pid):
        time.sleep(0.01)
    code = os.waitstatus_to_exitcode(ended[1])
    return code if code >= 0 else 128 - code


def is_left(group: int) -> bool:
    """Return whether anybody of a process group still runs."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def age() -> float:
    """Return the seconds since this process was started."""
    with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:  # noqa: PTH123 - loads less
        ticks = int(stat.read().rpartition(")")[2].split()[19])
        return float(uptime.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
