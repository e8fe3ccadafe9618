"""Tests of merging two objects."""

from __future__ import annotations

from typing import Any

from ptjob_provider.core.kinds.pod_template import laid_over, with_changes
from rows import each_row

GPU, SPOT = {"key": "gpu", "operator": "Exists"}, {"key": "spot", "operator": "Exists"}


@each_row(
    ("lower", "upper", "found"),
    [
        ({"a": 1, "b": 1}, {"b": 2, "c": 2}, {"a": 1, "b": 2, "c": 2}),
        ({"m": {"a": 1, "b": {"c": 1}}}, {"m": {"b": {"d": 2}}}, {"m": {"a": 1, "b": {"c": 1, "d": 2}}}),
        ({"m": {"a": 1}}, {"m": None}, {"m": None}),
        ({"args": ["a", "b"]}, {"args": ["c"]}, {"args": ["c"]}),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]},
            {"env": [{"name": "C", "value": "2"}, {"name": "A", "valueFrom": {}}]},
            {"env": [{"name": "A", "valueFrom": {}}, {"name": "B", "value": "1"}, {"name": "C", "value": "2"}]},
        ),
        (
            {"volumeMounts": [{"name": "x", "mountPath": "/a"}]},
            {"volumeMounts": [{"name": "y", "mountPath": "/a"}, {"name": "y", "mountPath": "/b"}]},
            {"volumeMounts": [{"name": "y", "mountPath": "/a"}, {"name": "y", "mountPath": "/b"}]},
        ),
        (
            {"containers": [{"name": "pytorch", "image": "a", "env": [{"name": "A"}]}, {"name": "side"}]},
            {"containers": [{"name": "other"}, {"name": "pytorch", "image": "b"}]},
            {
                "containers": [
                    {"name": "pytorch", "image": "b", "env": [{"name": "A"}]},
                    {"name": "side"},
                    {"name": "other"},
                ]
            },
        ),
        ({"tolerations": [GPU]}, {"tolerations": [SPOT, GPU]}, {"tolerations": [GPU, SPOT]}),
        (
            {"livenessProbe": {"exec": {}, "periodSeconds": 5}},
            {"livenessProbe": {"httpGet": {}}},
            {"livenessProbe": {"httpGet": {}}},
        ),
    ],
)
def test_the_value_of_the_upper_template_wins(
    lower: dict[str, Any], upper: dict[str, Any], found: dict[str, Any]
) -> None:
    """Maps are merged, and so are lists whose items have a name in Kubernetes."""
    assert laid_over(lower, upper) == found


@each_row(
    ("original", "before", "after", "found"),
    [
        ({"new": 1, "a": 1}, {"a": 1}, {"a": 1}, {"new": 1, "a": 1}),
        ({"new": 1, "a": 1}, {"a": 1}, {"a": 2, "b": 3}, {"new": 1, "a": 2, "b": 3}),
        ({"new": 1, "a": 1}, {"a": 1}, {}, {"new": 1}),
        ([{"new": 1, "a": 1}], [{"a": 1}], [{"a": 2}], [{"new": 1, "a": 2}]),
        ([{"new": 1}], [{}], [{}, {"a": 1}], [{}, {"a": 1}]),
        ({"a": None, "b": 1}, {"b": 1}, {"b": 2}, {"a": None, "b": 2}),
    ],
)
def test_only_changed_fields_are_taken_over(original: Any, before: Any, after: Any, found: Any) -> None:
    """Fields that the reader does not know stay, if their position is clear."""
    assert with_changes(original, before, after) == found
