"""Run TensorBoard on a cluster: for the lifetime of a job, or for a one-off view of a claim."""
