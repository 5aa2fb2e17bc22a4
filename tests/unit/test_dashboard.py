"""The Grafana dashboard against the metrics that the plugin really exposes."""

import json
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sglang_ppfix.observe.metrics import RingMetrics

DASHBOARD = Path(__file__).parents[2] / "docs/grafana/sglang-ppfix.json"


@pytest.fixture
def exposed(monkeypatch):
    """Names and label names of every sample, from the real exposition."""
    import prometheus_client

    registry = CollectorRegistry()
    for kind in ("Gauge", "Counter", "Histogram"):
        original = getattr(prometheus_client, kind)

        def make(*args, _original=original, **kwargs):
            return _original(*args, registry=registry, **kwargs)

        monkeypatch.setattr(prometheus_client, kind, make)
    metrics = RingMetrics({"model_name": "m", "tp_rank": "0"}, pp_rank=2)
    every = {"slot": "0", "policy": "stock", "reason": "share", "cause": "c"}
    for metric in vars(metrics).values():
        names = getattr(metric, "_labelnames", ())
        if names:
            labels = {"model_name": "m", "tp_rank": "0", "pp_rank": "2"}
            metric.labels(**{n: {**every, **labels}.get(n, "x") for n in names})
    text = generate_latest(registry).decode()
    families = text_string_to_metric_families(text)
    return {
        sample.name: set(sample.labels)
        for family in families
        for sample in family.samples
    }


def test_every_query_finds_its_metric_and_labels(exposed):
    """Catches a renamed metric or label that leaves a panel empty."""
    dashboard = json.loads(DASHBOARD.read_text())
    queries = [t for panel in dashboard["panels"] for t in panel["targets"]]
    used = set()
    for query in queries:
        selectors = re.findall(r"(sglang_ppfix:\w+)\{([^}]*)\}", query["expr"])
        assert selectors, query["expr"]
        shown = set(re.findall(r"\{\{(\w+)\}\}", query["legendFormat"]))
        for name, matchers in selectors:
            labels = set(re.findall(r"(\w+)=", matchers)) | shown
            assert labels <= exposed[name], (name, labels)
            used.add(name)
    unused = {n for n in exposed if not n.endswith(("_bucket", "_created"))} - used
    assert unused == set()
