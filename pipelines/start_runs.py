"""Start runs of a compiled pipeline: every night, or when data arrives.

    python digits.py
    python start_runs.py nightly --host http://localhost:8080 epochs=20
    python start_runs.py arrived --host http://localhost:8080 epochs=20

Kubeflow Pipelines has no trigger for data. Call `arrived` from the component that detects new data: the handler of a
bucket's notifications, the consumer of a message queue, or an Airflow DAG that is scheduled on an asset.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import yaml
from kfp import Client

PACKAGE = Path("digits.yaml")
EXPERIMENT = "digits"
NIGHTLY = "digits-nightly"
TYPES = {
    "NUMBER_INTEGER": ((int,), "a whole number"),
    "NUMBER_DOUBLE": ((int, float), "a number"),
    "BOOLEAN": ((bool,), "true or false"),
    "LIST": ((list,), "a JSON list"),
    "STRUCT": ((dict,), "a JSON object"),
}
"""Types of parameters that are not strings: name in a compiled pipeline → Python types, and text for errors."""


def nightly(client: Client, package: Path, arguments: dict[str, Any]) -> None:
    """Run the pipeline every night at three, one run at a time; missed runs are skipped. It replaces earlier calls.

    Args:
        client: client of the API server.
        package: the compiled pipeline.
        arguments: parameters that differ from their defaults.
    """
    experiment = client.create_experiment(EXPERIMENT)
    of_this_name = {"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": NIGHTLY}]}
    earlier = client.list_recurring_runs(
        experiment_id=experiment.experiment_id, page_size=100, filter=json.dumps(of_this_name)
    )
    client.create_recurring_run(
        experiment_id=experiment.experiment_id,
        job_name=NIGHTLY,
        cron_expression="0 0 3 * * *",
        max_concurrency=1,
        no_catchup=True,
        params=arguments,
        pipeline_package_path=str(package),
        enable_caching=False,
    )
    for each in earlier.recurring_runs or ():  # the server takes any number of the same name
        client.delete_recurring_run(each.recurring_run_id)


def arrived(client: Client, package: Path, arguments: dict[str, Any]) -> str:
    """Run the pipeline once, now, and return the run's id.

    Args:
        client: client of the API server.
        package: the compiled pipeline.
        arguments: parameters that differ from their defaults.
    """
    run = client.create_run_from_pipeline_package(
        str(package), arguments=arguments, experiment_name=EXPERIMENT, enable_caching=False
    )
    return str(run.run_id)


def read_arguments(package: Path, words: list[str]) -> dict[str, Any]:
    """Return the parameters in words such as `epochs=20`, with the types that the package declares.

    The types matter, because the API server does not accept a string for a number.

    Raises:
        ValueError: a word has another form, the package has no such parameter, or its value has another type.
    """
    pipeline = next(yaml.safe_load_all(package.read_text()))
    declared = pipeline["root"].get("inputDefinitions", {}).get("parameters", {})
    arguments = {}
    for word in words:
        name, is_given, text = word.partition("=")
        if not is_given:
            raise ValueError(f"{word}: write NAME=VALUE")
        if name not in declared:
            raise ValueError(f"{name}: {package.name} has no such parameter; it has {', '.join(sorted(declared))}")
        arguments[name] = read_value(name, text, declared[name]["parameterType"])
    return arguments


def read_value(name: str, text: str, declared: str) -> Any:
    """Return the value of a parameter of this type.

    Raises:
        ValueError: the value has another type.
    """
    if declared not in TYPES:
        return text
    types, allowed = TYPES[declared]
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if type(value) not in types:  # a bool is an int, but not a number
        raise ValueError(f"{name}: {text!r} is not allowed; allowed is {allowed}")
    return value


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("when", choices=["nightly", "arrived"])
    parser.add_argument("arguments", nargs="*", metavar="NAME=VALUE", help="parameters of the runs")
    parser.add_argument("--host", help="of the API server (default: the one that this pod or a port-forward has)")
    parser.add_argument("--package", type=Path, default=PACKAGE, help="the compiled pipeline (default: %(default)s)")
    args = parser.parse_intermixed_args()
    try:
        arguments = read_arguments(args.package, args.arguments)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    client = Client(host=args.host)
    if args.when == "nightly":
        nightly(client, args.package, arguments)
    else:
        print(arrived(client, args.package, arguments))


if __name__ == "__main__":
    main()
