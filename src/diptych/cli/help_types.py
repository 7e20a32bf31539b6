"""What a value is called in `--help`: ARCHIVE, MODEL, FILE or N, never `<list[Path]>`; and what Tab offers for a model.

An option may say it itself (`metavar=`); what is not said follows here from its name and type, so that the same thing
has the same word in every command. Knows nothing about what commands do.
"""

from __future__ import annotations

from pathlib import Path
from types import UnionType
from typing import Any, cast, get_args, get_origin

from typer.core import TyperArgument, TyperOption

BY_NAME = {
    "archive": "ARCHIVE",
    "ca": "FILE",
    "figure": "FILE.png",
    "labels": "FILE",
    "metadata": "FILE",
    "metric": "METRIC",
    "model": "MODEL",
    "out": "FOLDER",
    "preset": "PRESET",
    "tls_cert": "FILE",
    "tls_key": "FILE",
    "token_file": "FILE",
    "where": "CONDITION",
}
"""Words for options that several commands have."""
BY_TYPE = {int: "N", float: "NUMBER", str: "TEXT", Path: "PATH"}


def value_word(option: Any) -> str:
    """What stands beside an option in `--help`; nothing beside a flag."""
    described = option.type_descriptor
    if option.metavar is not None or option.is_flag:
        return option.metavar or ""
    if described.is_choice:
        return "|".join(str(choice.value) for choice in described.choices)
    if option.name in BY_NAME:
        return BY_NAME[option.name]
    if option.name.endswith("_list"):
        return "FILE"
    return BY_TYPE[_plain(described.annotation)]


def use_plain_types() -> None:
    """Let typer's help show these words; it has no setting for them."""
    option, argument = cast(Any, TyperOption), cast(Any, TyperArgument)
    option.display_type_rich = lambda self, ctx: value_word(self)
    argument.display_type_rich = lambda self, ctx: ""
    argument.display_name_raw = property(lambda self: self.metavar or self.name.upper())


def _plain(annotation: Any) -> Any:
    """`Path` of `list[Path] | None`."""
    while get_origin(annotation) in (UnionType, list):
        annotation = next(one for one in get_args(annotation) if one is not type(None))
    return annotation


def complete_model(incomplete: str) -> list[str]:
    """Shipped models whose names begin so; anything else is a folder, which the shell completes itself.

    Looks itself, because importing `diptych.model` brings torch, and whoever presses Tab waits for it.
    """
    weights = Path(__file__).parents[1] / "weights"
    return sorted(path.parent.name for path in weights.glob(f"{incomplete}*/model.safetensors"))
