"""Code that all jobs share: the session, reading snapshot checkpoints, ending with the parent process."""
