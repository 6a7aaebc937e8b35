"""What a process of a running plane reports on /metrics."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def samples(http: httpx.Client, url: str) -> list[Sample]:
    """Return all samples that a process reports.

    Raises:
        httpx.HTTPError: it did not answer, or not with its metrics.
    """
    text = http.get(f"{url}/metrics").raise_for_status().text
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]
