"""Code that all jobs share: the session, ending with the parent process."""
