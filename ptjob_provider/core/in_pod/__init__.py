"""Programs that run inside pods; each is one file that needs only the standard library."""
