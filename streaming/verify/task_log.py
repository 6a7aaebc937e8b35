"""The log as the driver and the tasks of the verify job open it."""

from __future__ import annotations

import functools
import os

from schemas.credentials import credentials_of
from services.log.kafka import KafkaLog
from services.log.schema_topic import follow_schemas

CLIENT_ID = "deepclean.verify"


@functools.cache
def task_log(bootstrap_servers: str) -> KafkaLog:
    """Return the log, which the tasks of one process share. On a secured plane the environment has the credentials."""
    log = KafkaLog(bootstrap_servers, CLIENT_ID, credentials=credentials_of(os.environ))
    follow_schemas(log)
    return log
