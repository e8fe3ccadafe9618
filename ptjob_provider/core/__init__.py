"""The framework-neutral core: training jobs, without any knowledge of Airflow or Kubeflow Pipelines."""
