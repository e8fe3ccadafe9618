"""Tests of the error about one field of a request: its parts are attributes, and adapters name the field their way."""

from __future__ import annotations

from ptjob_provider.core.errors import InvalidSpec
from rows import each_row


def test_an_error_carries_its_field_its_value_and_what_is_allowed() -> None:
    error = InvalidSpec.of("worker.cpu", "two", "allowed: a number of cores")

    assert str(error) == "worker.cpu: 'two' is not allowed; allowed: a number of cores"
    assert (error.field, error.value, error.allowed) == ("worker.cpu", "two", "allowed: a number of cores")


def test_an_error_may_leave_its_value_out() -> None:
    """It may be a secret."""
    error = InvalidSpec.at("env.TOKEN", "this value is not allowed")

    assert str(error) == "env.TOKEN: this value is not allowed"
    assert (error.field, error.shows_value) == ("env.TOKEN", False)


@each_row(
    "field",
    ["env", "worker.env[0]", "env_vars.env.A=canary", "spec.template.spec.containers[0].env", "containers[0].envFrom"],
)
def test_an_error_about_a_variable_never_shows_what_was_given(field: str) -> None:
    """Neither under another name; that a part is missing is said, and which Secret."""
    error = InvalidSpec.of(field, {"A": "canary"}, "allowed: a list")

    assert str(error) == f"{field.removesuffix('=canary')}: this value is not allowed; allowed: a list"
    assert "canary" not in str(error.renamed("--env"))
    assert "'s/key' is not" in str(InvalidSpec.of("env[A].valueFrom.secretKeyRef", "s/key", "not here"))
    assert (
        str(InvalidSpec.of("env[0].name", None, "allowed: a text"))
        == "env[0].name: None is not allowed; allowed: a text"
    )


def test_an_error_has_the_name_that_the_user_gave() -> None:
    """A long value is shortened as before; an error of no field stays as it is."""
    shown, hidden = InvalidSpec.of("command[0]", "x" * 200, "allowed: texts"), InvalidSpec.at("command", "a list")
    general = InvalidSpec("cmds and command mean the same")

    assert str(shown.renamed("cmds[0]")) == f"cmds[0]{str(shown).removeprefix('command[0]')}"
    assert str(hidden.renamed("cmds")) == "cmds: a list"
    assert general.renamed("cmds") is general
