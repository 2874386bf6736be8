"""Types of command-line arguments: text to values, with errors that quote the text."""

import argparse
from fractions import Fraction


def boolean(text: str) -> bool:
    values = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"must be true or false. Received: {text!r}")
    return values[text.lower()]


def positive_number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number. Received: {text!r}")
    return value


def positive_integer(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer. Received: {text!r}")
    return int(text)


def attack(text: str) -> tuple[str, tuple[float, ...]]:
    """The name of an attack and its sizes, as in "linf=4/255,8/255"; by default no sizes."""
    name, equals, sizes = text.partition("=")
    if not equals:
        return name, ()
    try:
        values = tuple(float(Fraction(size)) for size in sizes.split(","))
    except (ValueError, ArithmeticError):
        values = ()
    largest = 1.0 if name.endswith("linf") else float("inf")
    if name == "none" or not values or not all(0 <= value <= largest for value in values):
        raise argparse.ArgumentTypeError(
            "sizes are numbers of at least 0, for pixels from 0 to 1, as in linf=4/255 or "
            f"l2=0.25,0.5. Received: {text!r}"
        )
    return name, values
