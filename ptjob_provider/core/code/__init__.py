"""Package a user's code on this machine for a job's pods: the source of a function, or a folder."""
