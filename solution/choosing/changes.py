"""Describe in a sentence what a configuration changed in the compiled program."""

from collections import Counter

from solution.programs.hlo.messages import MESSAGES, instructions

SHOWN = 4
# Opcodes of layouts and library calls; others may just move into or out of a fusion.
TELLING = ("copy", "transpose", "bitcast", "fusion", "custom-call", "call", "dot", "convolution")
PLURALS = {"copy": "copies", "fusion": "fusions", "custom-call": "library calls", "call": "calls",
           "transpose": "transposes", "bitcast": "bitcasts", "dot": "dots",
           "convolution": "convolutions"}  # fmt: skip


def describe_changes(before: bytes, after: bytes) -> str:
    """Compare the counts of instructions in two serialized compiled modules, in a sentence."""
    first, second = _count(before), _count(after)
    changed = [name for name in TELLING if first[name] != second[name]]
    if not changed:
        return "As compiled it has the same instructions; how they are done differs."
    words = [
        f"{abs(second[name] - first[name])} {'more' if second[name] > first[name] else 'fewer'} "
        f"{_name(name, abs(second[name] - first[name]))} ({first[name]} to {second[name]})"
        for name in changed[:SHOWN]
    ]
    return f"As compiled it has {', '.join(words)}."


def _name(opcode: str, number: int) -> str:
    singular = "library call" if opcode == "custom-call" else opcode
    return singular if number == 1 else PLURALS[opcode]


def _count(module: bytes) -> Counter[str]:
    return Counter(i.opcode for i in instructions(MESSAGES["Module"].FromString(module)))
