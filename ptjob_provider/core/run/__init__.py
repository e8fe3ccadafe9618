"""Submit a job, follow it, decide its outcome, clean up, recall earlier tries; the same code for all adapters."""
