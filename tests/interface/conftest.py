"""The command line, as tests of it run it."""

import sys

import pytest

from dpcvx import cli


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command line; return its exit code, standard output and standard error."""

    def run(command):
        monkeypatch.setattr(sys, "argv", ["dpcvx", *command.split()])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return run
