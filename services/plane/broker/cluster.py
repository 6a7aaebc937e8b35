"""A Kafka cluster that others run: the plane waits until it answers, and never starts or stops it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException

from schemas.credentials import KafkaCredentials
from services.plane.broker.quiet_admin import quiet_admin
from services.plane.machine.errors import StackError

ANSWER_SECONDS = 30.0
ATTEMPT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class KafkaCluster:
    """The cluster in the place of a plane's own broker."""

    bootstrap_servers: str
    credentials: KafkaCredentials | None

    is_running = True
    """It is not for the plane to say."""
    process_id = None
    log_file = Path()

    def start(self) -> Self:
        """Wait until the cluster answers. Raise StackError if it does not."""
        deadline = time.monotonic() + ANSWER_SECONDS
        with quiet_admin(self.bootstrap_servers, self.credentials) as admin:
            while True:
                try:
                    admin.list_topics(timeout=ATTEMPT_SECONDS)
                except KafkaException as error:
                    if time.monotonic() > deadline:
                        raise StackError(
                            f"No broker answers on {self.bootstrap_servers} ({error.args[0].str()}): see that the "
                            f"cluster runs, and that address and credentials are right."
                        ) from error
                else:
                    return self

    def launch(self) -> Self:
        """Do nothing: others start it."""
        return self

    def stop(self) -> None:
        """Do nothing: others stop it."""

    def why_it_ended(self) -> StackError:
        """Return the error for a cluster that is not there."""
        return StackError(f"No broker answers on {self.bootstrap_servers}: see that the cluster runs.")
