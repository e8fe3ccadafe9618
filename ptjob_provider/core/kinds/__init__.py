"""One module per custom resource: typed job to manifest, object to status, which replicas there are and which is rank 0."""
