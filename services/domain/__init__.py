"""The pure rules: no clock, no log, no random number, no IO."""
