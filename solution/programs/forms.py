"""Recognise the form of a program file by its bytes, and split it into its modules.

HLO text begins with HloModule; StableHLO or VHLO text begins with a module or a function. Lines of
a log before the beginning are skipped. If a text was printed without its large constants, a custom
call named LEFT_OUT replaces each of them; solution.programs.left_out turns it into drawn numbers.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

HLO, STABLEHLO, PROTOBUF = "HLO", "StableHLO", "protobuf"
BYTECODE = b"ML\xefR"  # first bytes of MLIR bytecode, also inside the output of jax.export
MODULE_BEGIN = b"\n"  # first byte of a serialized module, and of a tuning record
LEFT_OUT = "fastslow.constant_left_out"
BOM = "\ufeff"
COMPRESSED = {
    b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
}  # fmt: skip
# first word of a program's text
TEXT_BEGIN = re.compile(rb"\s*(HloModule|module|func\.func|//|#loc)\b")
LOOKED_AT = 256  # characters at the beginning that are checked to recognise text
HEAD = 1 << 16  # bytes at the beginning that are read to distinguish protobuf from text
LENGTH = 4  # bytes before a vector in a flatbuffer, which hold the vector's length

# *_BEGIN: a module's beginning. MLIR_NAME: its name. DIVIDER: between modules. LOG: a log's prefix.
HLO_BEGIN = re.compile(
    r"^(?P<log>[IWEF]\d{4} .*?\] ?)?[ \t]*HloModule[ \t]+(?P<name>[^\s,]+)", re.M
)
MLIR_BEGIN = re.compile(
    r"^[ \t]*(?:\"?builtin\.module\b|module\b[ \t]*(?:@|attributes\b|\{)|\"?func\.func\b"
    r"|\"?vhlo\.func|[#!]\w+[ \t]*=)",
    re.M,
)
MLIR_NAME = re.compile(r"^[ \t]*(?:builtin\.)?module[ \t]+@(\"[^\"]*\"|[\w$.-]+)", re.M)
DIVIDER = re.compile(r"^[ \t]*// -----.*$", re.M)
LOG = re.compile(r"^[IWEF]\d{4} .*?\] ?", re.M)
# Patterns of constants without numbers. The group in MLIR's patterns is the constant's type.
HLO_LEFT_OUT = re.compile(r"\bconstant\(\{\.\.\.\}\)")
MLIR_LEFT_OUT = (
    re.compile(r"\bstablehlo\.constant dense_resource<__elided__> : (tensor<[^<>]*>)"),
    re.compile(
        r"\"stablehlo\.constant\"\(\) <\{value = dense_resource<__elided__> : tensor<[^<>]*>\}>"
        r" : \(\) -> (tensor<[^<>]*>)"
    ),
)
# Patterns of the numbers of partitions and of replicas in the text of a module.
HLO_COUNTS = re.compile(r"\bnum_partitions=(\d+)"), re.compile(r"\breplica_count=(\d+)")
MLIR_COUNTS = (
    re.compile(r"\bmhlo\.num_partitions = (\d+)"),
    re.compile(r"\bmhlo\.num_replicas = (\d+)"),
)


@dataclass(frozen=True)
class Source:
    """One module, as text or bytecode that a compiler reads."""

    form: str  # HLO or STABLEHLO
    content: str | bytes  # text, or MLIR bytecode as bytes
    name: str = ""  # name of the module; "" if the text has none
    partitions: int = 1  # number of partitions for which the module was made
    replicas: int = 1


def find_form(data: bytes) -> str:
    """Return the bytes' form, HLO, STABLEHLO or PROTOBUF; "" for text without a module."""
    if find_bytecode(data) is not None:
        return STABLEHLO
    text = decode(data)
    if text is None:
        return PROTOBUF
    begin = HLO_BEGIN.search(text)
    if MLIR_BEGIN.search(text[: begin.start()] if begin else text):
        return STABLEHLO
    return HLO if begin else ""


def find_form_of(path: Path) -> str:
    """Return a file's form, like `find_form`; of a protobuf file only the beginning is read."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    return find_form(path.read_bytes()) if find_form(head) != PROTOBUF else PROTOBUF


def has_module_begin(path: Path) -> bool:
    """Return True if a file begins like a serialized module or a tuning record."""
    with path.open("rb") as file:
        return file.read(len(MODULE_BEGIN)) == MODULE_BEGIN


def find_defect(data: bytes) -> str:
    """Return why bytes are no program text (compression, encoding, control characters), or ""."""
    for begin, name in COMPRESSED.items():
        if data.startswith(begin):
            return f"is compressed with {name}. Unpack it, and give the file in it."
    if not data.startswith(MODULE_BEGIN) and TEXT_BEGIN.match(data):
        try:
            data.decode()
        except UnicodeDecodeError as error:
            return (
                "is a text, but neither in UTF-8 nor in UTF-16: byte "
                f"{error.start:,} is 0x{data[error.start]:02x}. Save it as UTF-8."
            )
        return "is a text with control characters. Write it again, or save it as UTF-8."
    return ""


def find_bytecode(data: bytes) -> bytes | None:
    """Return the MLIR bytecode in `data`, which is all of `data` or a part of jax.export's output;
    None if there is none."""
    if data.startswith(BYTECODE):
        return data
    begin = data.find(BYTECODE)
    # jax.export's flatbuffers begin with a multiple of 4, a serialized module with the byte 10
    if begin < LENGTH or data[0] % LENGTH:
        return None
    length = int.from_bytes(data[begin - LENGTH : begin], "little")
    return data[begin : begin + length] if length <= len(data) - begin else None


def decode(data: bytes) -> str | None:
    """Decode UTF-8 or UTF-16 text, without byte order mark and zeros at the end (of buffers);
    return None if the bytes are no text."""
    encoding = json.detect_encoding(data)
    try:
        text = data.decode(encoding).removeprefix(BOM).rstrip("\0")
    except UnicodeDecodeError as error:
        # accept an incomplete last character if `data` is only the beginning (HEAD) of a file
        if len(data) != HEAD or error.end < HEAD - 1:
            return None
        text = data.decode(encoding, errors="ignore").removeprefix(BOM).rstrip("\0")
    is_text = all(sign.isprintable() or sign in "\n\r\t\f" for sign in text[:LOOKED_AT])
    return text if is_text else None


def list_sources(data: bytes, form: str) -> list[Source]:
    """Return the modules of a file's HLO or StableHLO (`form`) in order."""
    bytecode = find_bytecode(data)
    if bytecode is not None:
        return [Source(STABLEHLO, bytecode)]
    text = (decode(data) or "").replace("\r\n", "\n")
    divide = _divide_hlo if form == HLO else _divide_mlir
    return [_describe(form, part) for part in divide(text)]


def _divide_hlo(text: str) -> list[str]:
    begins = list(HLO_BEGIN.finditer(text))
    if not begins:
        return [text]
    ends = [*(match.start() for match in begins[1:]), len(text)]
    parts = [text[match.start() : end] for match, end in zip(begins, ends, strict=True)]
    logged = [bool(match["log"]) for match in begins]
    return [
        _cut_end(LOG.sub("", part) if is_logged else part)
        for part, is_logged in zip(parts, logged, strict=True)
    ]


def _cut_end(text: str) -> str:
    """Remove lines of a log that follow an HLO module's last closing bracket."""
    lines = text.splitlines()
    last = max((number for number, line in enumerate(lines) if line.strip() == "}"), default=None)
    rest = [] if last is None else lines[last + 1 :]
    if last is None or any("=" in line or "{" in line for line in rest):
        return text
    return "\n".join(lines[: last + 1]) + "\n"


def _divide_mlir(text: str) -> list[str]:
    begin = MLIR_BEGIN.search(text)
    parts = DIVIDER.split(text[begin.start() :] if begin else text)
    return [part for part in parts if MLIR_BEGIN.search(part)] or [text]


def _describe(form: str, text: str) -> Source:
    match = HLO_BEGIN.search(text) if form == HLO else MLIR_NAME.search(text)
    name = "" if match is None else match["name"] if form == HLO else match[1].strip('"')
    head = text if form == STABLEHLO else text[: text.find("\n")]
    counts = [
        int(found[1]) if (found := pattern.search(head)) else 1
        for pattern in (HLO_COUNTS if form == HLO else MLIR_COUNTS)
    ]
    return Source(form, _mark_left_out(form, text), name, *counts)


def _mark_left_out(form: str, text: str) -> str:
    """Replace each constant that the text leaves out by a custom call named LEFT_OUT."""
    if form == HLO:
        return HLO_LEFT_OUT.sub(f'custom-call(), custom_call_target="{LEFT_OUT}"', text)
    for pattern in MLIR_LEFT_OUT:
        text = pattern.sub(rf"stablehlo.custom_call @{LEFT_OUT}() : () -> \1", text)
    return text
