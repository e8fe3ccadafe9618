"""Stand-in for Argo's emissary, the first process of a step's container. It follows the source of Argo 4.

    emissary_stand_in.py SECONDS LAUNCHER ...

Starts the launcher in its own process group and forwards every signal to that group. When the launcher exits, the
container ends, even if other processes still run. Argo checks for that once a second, so the processes of a stopped
step live for up to another second; here SECONDS sets how long, if they do not exit earlier.
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
    """Run the launcher and return its exit code as a shell would."""
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
    """Return whether a process of the group still runs."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def age() -> float:
    """Return the seconds since this process started."""
    with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:  # noqa: PTH123 - without importing pathlib
        ticks = int(stat.read().rpartition(")")[2].split()[19])
        return float(uptime.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
