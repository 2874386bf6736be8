"""Flags and help of `jem-tf`: examples for each command, and the names that the library knows."""

import argparse
import re

import pytest

from jem_tf.objectives import OBJECTIVES
from jem_tf.training import recipes
from jem_tf_cli import main, parser, types
from jem_tf_cli.examples import EXAMPLES


def help_of(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_shows_examples(command, capsys):
    text = help_of(command, capsys)
    assert "examples:" in text and f"jem-tf {command or 'demo'}" in text


def test_examples_use_flags_that_exist():
    commands = re.findall(r"^ *jem-tf (.*?)(?:  .*)?$", "\n".join(EXAMPLES.values()), re.M)
    assert len(commands) > 20
    for command in commands:
        words = command.split()
        parser.make_parser(words).parse_args([word.replace("_", "-") for word in words])


def test_help_names_the_objectives_of_the_library(capsys):
    names = [name.split()[0] for name in parser.OBJECTIVES.split(", ")]
    assert names == list(OBJECTIVES)
    assert parser.OBJECTIVES.startswith("joint (default)")
    text = help_of("train", capsys)
    assert all(name in text for name in OBJECTIVES)


def test_help_names_the_recipes_of_the_library(capsys):
    names = parser.RECIPES.replace("; the paper's", ",").split(", ")
    assert sorted(names) == sorted(recipes.RECIPES)
    text = help_of("train", capsys)
    assert all(name in text for name in recipes.RECIPES)


@pytest.mark.parametrize("flag", [["--epochs", "0"], ["--epochs", "many"], ["--colour", "red"]])
def test_errors_quote_wrong_flags(flag, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "digits", *flag])
    assert stop.value.code == 2
    assert flag[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (types.boolean, "True", True),
        (types.boolean, "0", False),
        (types.positive_number, "1e-3", 1e-3),
        (types.positive_integer, "7", 7),
    ],
)
def test_values_of_flags(kind, text, value):
    assert kind(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (types.boolean, "maybe"),
        *((types.positive_number, text) for text in ("0", "-1", "nan", "inf", "x")),
        *((types.positive_integer, text) for text in ("0", "-1", "1.5", "x")),
    ],
)
def test_errors_quote_wrong_values_of_flags(kind, text):
    with pytest.raises(argparse.ArgumentTypeError, match=f"Received: '{text}'"):
        kind(text)
