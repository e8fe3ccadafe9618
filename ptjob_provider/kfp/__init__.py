"""Training jobs as steps of Kubeflow Pipelines: `component` is for pipeline authors, `step` runs in the step's pod."""
