"""`completion`: a shell script that completes commands, options and the names of jobs."""

from __future__ import annotations

import click

_FILES = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/completions/ptjob.fish"}


@click.command()
@click.argument("shell", type=click.Choice(list(_FILES)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a shell completion script.

    Commands, options, jobs, claims, namespaces.

    \b
    bash  echo 'eval "$(ptjob completion bash)"' >> ~/.bashrc
    zsh   echo 'eval "$(ptjob completion zsh)"' >> ~/.zshrc
    fish  ptjob completion fish > ~/.config/fish/completions/ptjob.fish
    """  # noqa: D301 - click keeps the lines of a paragraph that begins so
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None  # noqa: S101 - click brings all three
    click.echo(script(context.find_root().command, {}, "ptjob", "_PTJOB_COMPLETE").source())  # noqa: TID251 - click's own program
