"""Training jobs as steps of Kubeflow Pipelines: pipeline authors use `component`, and `step` runs in the pod."""
