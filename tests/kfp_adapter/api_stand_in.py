"""Stands in for the API server of Kubeflow Pipelines where it looks at a run's parameters.

Read in `validatePipelineJobInputs` (`backend/src/apiserver/template/v2_template.go`) of version 2.17.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_TYPES = {
    "NUMBER_DOUBLE": (int, float),
    "NUMBER_INTEGER": (int, float),
    "STRING": (str,),
    "BOOLEAN": (bool,),
    "LIST": (list,),
    "STRUCT": (dict,),
}


class BadRequestStandIn(Exception):
    """Status 400."""


def check_parameters(pipeline: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Pass if each parameter of a run has the type that the pipeline declares; a text is no number.

    Raises:
        BadRequestStandIn: one has not, is missing, or is not declared.
    """
    declared = pipeline["root"].get("inputDefinitions", {}).get("parameters", {})
    for name in given:
        if name not in declared:
            raise BadRequestStandIn(f"pipeline does not have parameter {name}")
    for name, each in declared.items():
        if name not in given:
            if not each.get("isOptional") and "defaultValue" not in each:
                raise BadRequestStandIn(f"parameter {name} is not optional")
        elif type(given[name]) not in _TYPES[each["parameterType"]]:
            raise BadRequestStandIn(f"input parameter {name} requires type {each['parameterType']}")
