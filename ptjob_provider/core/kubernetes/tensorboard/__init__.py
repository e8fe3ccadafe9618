"""TensorBoard on a cluster: objects, the one beside a job, and one-off views."""
