"""Read the metrics of a process of a running plane."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def samples(http: httpx.Client, url: str) -> list[Sample]:
    """Return all samples that a process reports on /metrics.

    Raises:
        httpx.HTTPError: the process did not answer, or answered without metrics.
    """
    text = http.get(f"{url}/metrics").raise_for_status().text
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]
