"""Submit a job, follow it, decide its outcome, clean up and resume; the same code for all adapters."""
