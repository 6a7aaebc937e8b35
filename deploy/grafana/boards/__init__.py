"""All dashboards, in the order in which they are listed."""

from __future__ import annotations

from deploy.grafana.boards.deletions import DELETIONS
from deploy.grafana.boards.kafka import KAFKA
from deploy.grafana.boards.overview import OVERVIEW
from deploy.grafana.boards.shard import SHARD
from deploy.grafana.boards.space import SPACE
from deploy.grafana.boards.spark import SPARK

BOARDS = (OVERVIEW, DELETIONS, SPACE, SPARK, KAFKA, SHARD)
