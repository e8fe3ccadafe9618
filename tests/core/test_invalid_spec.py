"""Tests of the error about one field of a request: its parts are attributes, and adapters name the field their way."""

from __future__ import annotations

from ptjob_provider.core.errors import InvalidSpec


def test_an_error_carries_its_field_its_value_and_what_is_allowed() -> None:
    error = InvalidSpec.of("worker.cpu", "two", "allowed: a number of cores")

    assert str(error) == "worker.cpu: 'two' is not allowed; allowed: a number of cores"
    assert (error.field, error.value, error.allowed) == ("worker.cpu", "two", "allowed: a number of cores")


def test_an_error_may_leave_its_value_out() -> None:
    """It may be a secret."""
    error = InvalidSpec.at("env.TOKEN", "this value is not allowed")

    assert str(error) == "env.TOKEN: this value is not allowed"
    assert (error.field, error.shows_value) == ("env.TOKEN", False)


def test_an_error_has_the_name_that_the_user_gave() -> None:
    """A long value is shortened as before; an error of no field stays as it is."""
    shown, hidden = InvalidSpec.of("command[0]", "x" * 200, "allowed: texts"), InvalidSpec.at("command", "a list")
    general = InvalidSpec("cmds and command mean the same")

    assert str(shown.renamed("cmds[0]")) == f"cmds[0]{str(shown).removeprefix('command[0]')}"
    assert str(hidden.renamed("cmds")) == "cmds: a list"
    assert general.renamed("cmds") is general
