"""One module per CRD: job to manifest, object to status, which pods there are and which is rank 0."""
