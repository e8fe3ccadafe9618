"""Local back-end: run jobs as processes of this machine, for development, tests and first steps. Linux only.

It runs one attempt of the manifest that a cluster takes, without restarts: `backend` checks and submits it, and one
`supervisor` process per job starts, watches and stops its replicas. The state on disk consists of Kubernetes objects,
so that the same code reads local jobs and cluster jobs.

This package imports nothing, because the supervisor is a module of it and must start in milliseconds.
"""
