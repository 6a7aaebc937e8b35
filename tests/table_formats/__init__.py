"""Tables of other programs for the tests of the lens, made and cleaned up by these programs themselves."""
