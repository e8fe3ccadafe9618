"""Programs that run inside pods: one file each, the standard library only."""
