"""What all jobs share: the session, reading checkpoints, ending with the parent."""
