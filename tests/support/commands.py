"""Commands of dglrun called in this process."""

from types import ModuleType

from dglrun import cli


def run_command(module: ModuleType, *argv: str) -> int:
    """Run `argv`, which starts with the name of the module's command, as dglrun would."""
    assert module.__name__ == f"dglrun.commands.{argv[0]}"
    return cli.run_command(argv)
