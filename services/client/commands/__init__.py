"""The sub-commands of ``deepclean``, one file a family."""
