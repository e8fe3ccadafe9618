"""The use case, once for all adapters: submit, follow, judge, clean up, resume."""
