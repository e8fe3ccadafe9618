"""What is true of a training job whoever asks for it; it has never heard of Airflow or Kubeflow Pipelines."""
