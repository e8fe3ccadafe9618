"""A user's code as it is on this machine: a function's source, or a folder, made ready to travel into a job's pods."""
