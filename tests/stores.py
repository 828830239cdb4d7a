"""Stores of collections for tests."""

from typer.testing import CliRunner

from caloric import cli
from caloric.collection import engines, extraction
from caloric.options import ExtractOptions
from tools.drills import kills

SETTINGS = ExtractOptions(max_features=120)
HERE = engines.InProcess()
content = kills.content


def extract(directory, out, engine=HERE, **options):
    return extraction.extract(str(directory), out, SETTINGS, engine, **options)


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])
