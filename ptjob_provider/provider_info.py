"""Return this provider's metadata to Airflow; every Airflow process imports this module, so it imports nothing."""

from __future__ import annotations

from typing import Any

_INTEGRATION = "PyTorch training jobs"
_GUIDES = ("kubernetes-backend", "local-backend", "data-arrival", "trainjob")


def get_provider_info() -> dict[str, Any]:
    """Return the metadata as in Airflow's `provider_info.schema.json`; paths begin at the repository's root.

    There are no connection types: jobs use the type `kubernetes`, which belongs to the provider cncf.kubernetes.
    """
    return {
        "package-name": "ptjob-provider",
        "name": "PyTorch training jobs",
        "state": "ready",
        "lifecycle": "incubation",
        "description": "Distributed PyTorch training as Airflow tasks: PyTorchJobs and TrainJobs of Kubeflow.",
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://www.kubeflow.org/docs/components/trainer/",
                "how-to-guide": [f"/docs/how-to/{page}.md" for page in _GUIDES],
                "logo": "/docs/images/logo.svg",
                "tags": ["software"],
            }
        ],
        "operators": _modules("ptjob_provider.airflow.operators", "ptjob_provider.retraining.operators"),
        "sensors": _modules("ptjob_provider.airflow.sensors"),
        "hooks": _modules("ptjob_provider.airflow.hooks"),
        "triggers": _modules("ptjob_provider.airflow.triggers", "ptjob_provider.retraining.triggers"),
        "extra-links": [
            "ptjob_provider.airflow.links.PyTorchJobLink",
            "ptjob_provider.airflow.links.PyTorchJobLogsLink",
            "ptjob_provider.airflow.links.PyTorchJobTensorBoardLink",
            "ptjob_provider.airflow.links.PyTorchJobTrainingLink",
        ],
        "task-decorators": [
            {"name": "pytorch_job", "class-name": "ptjob_provider.airflow.decorators.pytorch_job_task"}
        ],
        "config": {"ptjob": {"description": "How PyTorch training jobs are run.", "options": dict(OPTIONS)}},
    }


def _modules(*names: str) -> list[dict[str, Any]]:
    return [{"integration-name": _INTEGRATION, "python-modules": list(names)}]


def _option(
    description: str, default: str, example: str | None = None, *, kind: str = "string", sensitive: bool = False
) -> dict[str, Any]:
    option = {"description": description, "version_added": "0.1.0", "type": kind, "example": example}
    return {**option, "default": default, **({"sensitive": True} if sensitive else {})}


OPTIONS: dict[str, dict[str, Any]] = {
    "backend": _option(
        "Where jobs run: ``kubernetes``, or ``local`` for processes of this machine (development, tests, the first "
        "five minutes). The same DAG file runs on both.",
        "kubernetes",
        "local",
    ),
    "kind": _option(
        "Kind of each job that names none: ``PyTorchJob``, ``TrainJob`` or ``PyTorchTrainingJob``. If the cluster does "
        "not serve it, the next one in this list that it serves is used. Jobs that exist keep their kind. Empty: the "
        "first that it serves.",
        "",
        "TrainJob",
    ),
    "instance": _option(
        "Name of this Airflow installation. Airflows that share a namespace need different names: jobs of another "
        "name are neither adopted nor stopped. Empty: an id that the first task creates and stores as the Variable "
        "``ptjob_instance_...``. Change it only while no training runs.",
        "",
        "production",
    ),
    "probe_image": _option(
        "Cluster: image of the pods that inspect a job's declared outputs and look for its checkpoints; it needs "
        "``python3``, 3.6 or newer. "
        "Empty: the job's own image, which its node already has.",
        "",
        "python:3.13-alpine",
    ),
    "sync_image": _option(
        "Image that fetches the code of jobs with ``code``, unless the job names one. Empty: this package's. Also "
        "possible: your own build of ``docker/sync``, or git-sync 3 or 4 (without rsync).",
        "",
        "registry.example.com/ptjob/sync:1",
    ),
    "tensorboard_image": _option(
        "Cluster: image that runs the TensorBoard of jobs with ``tensorboard``, unless a job names one; it needs "
        "``python3`` with TensorBoard. Empty: the job's own image, which has TensorBoard if its program writes events "
        "with ``torch.utils.tensorboard``.",
        "",
        "registry.example.com/team/tensorboard:2",
    ),
    "image_prefix": _option(
        "Cluster: prefix of ``probe_image``, ``sync_image`` and ``tensorboard_image``, such as a mirror's address. "
        "Images of jobs are not changed.",
        "",
        "registry.example.com/mirror/",
    ),
    "probe_timeout": _option(
        "Cluster: maximum seconds for the inspection of a job's outputs, and for one look for its checkpoints: "
        "scheduling the pod, starting it and reading every byte of the model. Raise it for models of hundreds of "
        "gigabytes.",
        "300",
        kind="float",
    ),
    "job_template": _option(
        "Defaults for every job: the path of a YAML or JSON file, or JSON. It has the operator's own fields "
        "(``labels``, ``tolerations``, ``node_selector``, ``service_account_name``, ``image_pull_secrets``, "
        "``queue_name``, ``env`` ...) and ``pod_template``, a Kubernetes pod template. A task's own fields and its "
        "manifest override it. Maps are merged, and lists that Kubernetes merges by name (containers, variables, "
        "volumes, mounts); tolerations and ``env_from`` are appended; any other list of the task replaces this one.",
        "",
        "/etc/ptjob/job-template.yaml",
    ),
    "job_url": _option(
        "Address of a page that shows a job, for the task's *Job* button; ``{namespace}``, ``{name}`` and ``{uid}`` "
        "are replaced. Empty: no such button.",
        "",
        "https://dashboard.example.com/pytorchjobs/{namespace}/{name}",
    ),
    "log_url": _option(
        "Address of a page that shows a job's log, for the task's *Job log* button; ``{namespace}``, ``{name}`` and "
        "``{uid}`` are replaced. Empty: no such button.",
        "",
        "https://grafana.example.com/explore?var-namespace={namespace}&var-job={name}",
    ),
    "tensorboard_url": _option(
        "Address of a job's TensorBoard, for example at your ingress, for the task's *TensorBoard* button; "
        "``{namespace}``, ``{name}`` and ``{uid}`` are replaced. Empty: the address of its Service.",
        "",
        "https://tensorboard.example.com/{namespace}/{name}/",
    ),
    "training_tab": _option(
        "Also show the Training page as a tab. Airflow then has the tab on every task of every DAG, and the links of a "
        "page in a tab do not open. The task's *Training* button is there without it.",
        "False",
        "True",
        kind="boolean",
    ),
    "max_log_records_per_second": _option(
        "Maximum log records per second that a triggerer or a worker writes for all jobs together. Below it, each line "
        "is a record at once. Above it, jobs take turns, and all waiting lines of a job become one record. No line is "
        "dropped. In a test, Airflow's triggerer was fully busy with about 2,800 records per second.",
        "1000",
        "300",
        kind="float",
    ),
    "max_log_streams": _option(
        "Cluster: maximum number of jobs in each triggerer and worker whose log has a stream of its own. The log of a "
        "further job is read when a stream is free, or at the job's end; of what it writes until then, the node keeps "
        "the newest 10 MiB. A stream is one connection to the API server and one from there to the node.",
        "200",
        "500",
        kind="integer",
    ),
    "usage_interval": _option(
        "Cluster: seconds between two measurements of CPU and memory of followed jobs, in each triggerer and worker; "
        "the peaks are in the result. A measurement is one request to the metrics API for all jobs of a namespace. It "
        "needs a metrics server and the Role of deploy/components/usage. 0: no measurements.",
        "120",
        "30",
        kind="float",
    ),
    "api_error_timeout": _option(
        "Seconds for which the API server may refuse requests about an existing job (401, 403, 400, ...; such as "
        "during a change of RBAC) before a try fails with an error that is retried. The job continues. A server that "
        "does not answer at all is waited for without a limit. Also for a triggerer that lacks the connection.",
        "900",
        "3600",
        kind="float",
    ),
    "orphan_grace": _option(
        "Seconds for which the maintenance DAG spares an orphaned job that its task could not "
        "follow any more, or whose task has no state or is gone, because such a job may be healthy. They count from "
        "the end of the task's last try, or from the first search that found it so.",
        "86400",
        "604800",
        kind="float",
    ),
    "local_root": _option(
        "Local backend: directory for jobs, their logs and claims, on a local disk; every Airflow component that "
        "follows jobs must see it. Empty: ``ptjob`` in AIRFLOW_HOME.",
        "",
        "/var/lib/ptjob",
    ),
    "local_images": _option(
        "Local backend: replacements of images, as a JSON map of image name to a directory: the image's build context, "
        "whose Dockerfile has entrypoint and environment. A job of any other image runs without them, and the log says "
        "so.",
        "",
        '{"registry.example.com/digits": "/srv/dags/docker/digits"}',
    ),
    "local_python": _option(
        "Local backend: the Python interpreter of jobs. Empty: the one that runs Airflow.",
        "",
        "/opt/training/bin/python",
    ),
    "local_gpus": _option(
        "Local backend: the number of GPUs of this machine that jobs may use; a job that requests more is refused. "
        "Empty: none. ``ignore``: jobs that request GPUs run on the CPU, and the log says so.",
        "",
        "2",
    ),
    "local_secrets": _option(
        "Local backend: values for environment variables that come from secrets, as the path of a JSON or YAML file or "
        "as JSON: a map of secret name to a map of key to value. A reference to a secret that is not here is refused.",
        "",
        "/run/secrets/ptjob.yaml",
        sensitive=True,
    ),
    "local_config_maps": _option(
        "Local backend: the same for environment variables that come from config maps.",
        "",
        '{"training": {"DATASET": "digits"}}',
    ),
}
"""Options of the configuration section `[ptjob]`, with their only definition of defaults."""
