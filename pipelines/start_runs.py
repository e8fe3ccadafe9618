"""Start runs of a compiled pipeline: every night, or whenever data arrives.

    python digits.py
    python start_runs.py nightly --host http://localhost:8080
    python start_runs.py arrived --host http://localhost:8080 epochs=20

Kubeflow Pipelines has no trigger for data: whoever sees it arrive calls `arrived`, such as a bucket's notification, a
message queue's consumer, or an Airflow DAG that is scheduled on an asset.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kfp import Client

PACKAGE = Path("digits.yaml")
EXPERIMENT = "digits"


def nightly(client: Client, package: Path) -> None:
    """Run the pipeline every night at three, one run at a time; what was missed is not made up for."""
    experiment = client.create_experiment(EXPERIMENT)
    client.create_recurring_run(
        experiment_id=experiment.experiment_id,
        job_name="digits-nightly",
        cron_expression="0 0 3 * * *",
        max_concurrency=1,
        no_catchup=True,
        pipeline_package_path=str(package),
        enable_caching=False,
    )


def arrived(client: Client, package: Path, arguments: dict[str, str]) -> str:
    """Run the pipeline once, now, and return the run's id.

    Args:
        client: of the API server.
        package: the compiled pipeline.
        arguments: its parameters, as far as they differ from their defaults.
    """
    run = client.create_run_from_pipeline_package(
        str(package), arguments=arguments, experiment_name=EXPERIMENT, enable_caching=False
    )
    return str(run.run_id)


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("when", choices=["nightly", "arrived"])
    parser.add_argument("arguments", nargs="*", metavar="NAME=VALUE", help="parameters of the run, for arrived")
    parser.add_argument("--host", help="of the API server (default: the one that this pod or a port-forward has)")
    parser.add_argument("--package", type=Path, default=PACKAGE, help="the compiled pipeline (default: %(default)s)")
    args = parser.parse_args()
    client = Client(host=args.host)
    if args.when == "nightly":
        nightly(client, args.package)
    else:
        print(arrived(client, args.package, dict(each.split("=", 1) for each in args.arguments)))


if __name__ == "__main__":
    main()
