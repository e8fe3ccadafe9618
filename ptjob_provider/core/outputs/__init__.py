"""A job's declared outputs: contract, verification, result, and hand-over to the next program."""
