"""Show the outputs of a finished run as tables: the tasks, the model, the curves, and commands to view them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from demo.folder import Folder
from demo.story import STATE_COLOURS, STREAMED_OPERATOR

if TYPE_CHECKING:
    from demo.place import Place
    from demo.stack import Stack


def summarize(stack: Stack, folder: Folder, place: Place, dag_id: str, run_id: str) -> Group:
    """Return the tables of one run."""
    tasks = stack.api.tasks(dag_id, run_id)
    trained = [task for task in tasks if task["operator_name"] == STREAMED_OPERATOR]
    results = {task["task_id"]: stack.api.xcom(dag_id, run_id, task["task_id"]) for task in trained}
    parts = [_tasks(tasks), *(_outputs(name, result, place) for name, result in results.items() if result)]
    return Group(*(part for part in parts if part), *place.tables(), Text(), _hints(folder, place))


def _tasks(tasks: list[dict[str, Any]]) -> Table:
    table = Table(title="tasks", title_justify="left", box=None, header_style="dim")
    for column in ("task", "operator", "state", "try", "seconds"):
        table.add_column(column, justify="right" if column in {"try", "seconds"} else "left")
    for task in sorted(tasks, key=lambda task: task["start_date"] or "~"):
        state = task["state"] or "none"
        table.add_row(
            task["task_id"],
            task["operator_name"],
            Text(state, style=STATE_COLOURS.get(state, "yellow")),
            str(task["try_number"]),
            _seconds(task),
        )
    return table


def _outputs(task_id: str, result: dict[str, Any], place: Place) -> Table | None:
    table = Table(title=f"\n{task_id}", title_justify="left", box=None, show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    table.add_row("job", f"{result['job']['namespace']}/{result['job']['name']}, attempt {result['attempt']}")
    table.add_row("ran", f"{result['run_seconds']:.1f} s after {result['queue_seconds']:.1f} s of waiting")
    if model := result["model"]:
        where, checked = place.model(model)
        table.add_row("model", where)
        table.add_row("", f"{model['bytes']:,} bytes, sha256 {model['sha256']} ({checked})")
    if tfevents := result["tfevents"]:
        table.add_row("tfevents", place.curves(tfevents))
        for tag, value in sorted(tfevents["scalars"].items()):
            table.add_row("", f"{tag} = {value:.4f}" + (f" at step {tfevents['last_step']}"))
    return table


def _hints(folder: Folder, place: Place) -> Table:
    table = Table(title="to look further", title_justify="left", box=None, show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    latest = Folder(path=folder.path.parent / "latest").shown
    airflow = [("Airflow's logs", f"{latest}/airflow/logs"), ("Airflow's page", f"{place.command} UI=1")]
    for row in (*place.hints(), *airflow):
        table.add_row(*row)
    return table


def _seconds(task: dict[str, Any]) -> str:
    if not task["start_date"] or not task["end_date"]:
        return ""
    return (
        f"{(datetime.fromisoformat(task['end_date']) - datetime.fromisoformat(task['start_date'])).total_seconds():.1f}"
    )
