"""`make demo`: a real Airflow on this machine runs a scheduled DAG that trains, verifies and evaluates a model.

`make demo-cluster`: the same DAG file, with jobs as pods of a Kubernetes cluster; only the configuration differs.

Nothing is simulated: the schedule creates the run, the scheduler, the triggerer and a worker do the work, and the
output comes from Airflow's REST API. Everything that is started here is stopped again, also after Ctrl-C and errors.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from demo.cluster import Cluster
from demo.folder import ROOT, Folder, make_folder
from demo.machine import Machine
from demo.session import demonstrate, heed_signals, make_console, stack_config
from demo.stack import Stack
from demo.story import Story, wait_for_scheduled_run
from demo.summary import summarize

if TYPE_CHECKING:
    from rich.console import Console

    from demo.place import Place

DAG_ID = "digits"
CLUSTER_IMAGE = "ghcr.io/ptjob-provider/digits:test"
RUN_TIMEOUT = 900


def main() -> int:
    """Run the demonstration and return the exit code: 0 if the run succeeded."""
    args = parse_args()
    console = make_console()
    heed_signals()
    folder = make_folder(args.folder)
    place = place_of(args, folder)
    stack = Stack(stack_config(folder, place, port=args.port))
    return demonstrate(stack, place, console, lambda: show(stack, folder, place, console, keep_page=args.ui))


def show(stack: Stack, folder: Folder, place: Place, console: Console, *, keep_page: bool) -> int:
    """Start Airflow, wait for the scheduled run, show it, and return the exit code."""
    began = time.monotonic()
    console.print(f"[bold]Airflow[/] in {folder.shown}: its own database, scheduler, triggerer and page")
    console.print(f"[bold]Jobs[/] {place.title}")
    place.prepare()
    stack.start(tell=lambda part: console.print(f"  {part:<14} ready after {time.monotonic() - began:4.1f} s"))
    stack.api.wait_for_dag(DAG_ID)
    stack.api.unpause(DAG_ID)
    run_id = wait_for_scheduled_run(stack, DAG_ID)
    console.print(f"{DAG_ID} was unpaused, and its schedule made the run [bold]{run_id}[/]")
    state = Story(stack, console, DAG_ID, run_id).tell(timeout=RUN_TIMEOUT)
    console.rule(f"the run ended as {state} after {time.monotonic() - began:.0f} s in all")
    console.print(summarize(stack, folder, place, DAG_ID, run_id))
    if keep_page:
        serve(stack, console, run_id)
    return 0 if state == "success" else 1


def serve(stack: Stack, console: Console, run_id: str) -> None:
    """Keep Airflow's page available until Ctrl-C."""
    console.print(f"\n[bold]{stack.url}/dags/{DAG_ID}/runs/{run_id}[/]\nCtrl-C ends it")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            stack.check_alive()
            time.sleep(1)


def place_of(args: argparse.Namespace, folder: Folder) -> Place:
    """Return the place of the jobs: this machine, or the cluster of the kubeconfig."""
    if args.kubeconfig is None:
        return Machine(folder=folder)
    return Cluster(kubeconfig=args.kubeconfig.absolute(), image=args.image, namespace=f"digits-demo-{folder.path.name}")


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--ui", action="store_true", help="keep Airflow's page until Ctrl-C")
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORT") or 0), help="of the page; 0: a free one")
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        nargs="?",
        const=os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config",
        help="run the jobs as pods of this cluster; without a file: of %(const)s",
    )
    parser.add_argument("--image", default=CLUSTER_IMAGE, help="the digits image there (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=ROOT / ".demo", help="folder of the runs")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
