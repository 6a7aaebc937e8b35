"""The exit statuses of a service's process, by which whoever starts it knows what to do."""

from __future__ import annotations

STOPPED_STATUS = 1
"""A shard had to stop: the last line of the log says why and what to do. A new start may succeed."""
WRONG_SETTING_STATUS = 2
FENCED_STATUS = 4
"""Another process has become the owner of a shard: a new start would take it back, and end the other one."""
