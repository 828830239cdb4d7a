"""Stores of collections for tests."""

import shutil

from typer.testing import CliRunner

from caloric import cli
from caloric.collection import engines, extraction, matching, pairing
from caloric.options import ExtractOptions
from tools.drills import kills

SETTINGS = ExtractOptions(max_features=120)
HERE = engines.InProcess()
content = kills.content


def extract(directory, out, engine=HERE, **options):
    return extraction.extract(str(directory), out, SETTINGS, engine, **options)


def verified(directory, out, options, count):
    """Write a store of images with ``count`` features each: extracted, matched and verified."""
    extraction.extract(str(directory), out, ExtractOptions(max_features=count), HERE)
    matching.match(out, pairing.pairs(out, pairing.Pairing(), HERE), options, HERE)
    matching.verify(out, options, HERE)
    return out


def copied(source, target):
    return shutil.copytree(source, target)


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])
