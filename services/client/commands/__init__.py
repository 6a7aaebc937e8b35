"""The sub-commands of ``deepclean``, one module each."""
