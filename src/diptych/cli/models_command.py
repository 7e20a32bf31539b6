"""`diptych models`: what is shipped, and what each model reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def models(
    json_output: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the models that come with Diptych: give one by name wherever a command takes --model."""
    from diptych.cli.console import print_json
    from diptych.model.shipped import DEFAULT_MODEL, shipped_models

    found = [_about(name, folder) for name, folder in shipped_models().items()]
    if json_output:
        print_json(found)
        return
    for one in found:
        default = ", taken where none is named" if one["name"] == DEFAULT_MODEL else ""
        print(f"{one['name']}  {one['fingerprint'][:12]}, {one['megabytes']:.1f} MB{default}")
        print(f"    {one['sentence']}")
        print(f"    {one['size'][0]}x{one['size'][1]} pixels, two grids of {one['grid'][0]}x{one['grid'][1]} codes")
    print("Research use only, not a medical device.")


def _about(name: str, folder: Path) -> dict[str, Any]:
    """What a model's config says; its weights are not read."""
    import json

    from diptych.config import ModelConfig

    stored = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = ModelConfig.from_dict(stored["model"])
    return {
        "name": name,
        "folder": folder,
        "fingerprint": stored["fingerprint"],
        "sentence": config.about.sentence(),
        "channels": config.about.channels,
        "lesion": config.about.lesion_names,
        "anatomy": config.about.anatomy_names,
        "size": config.image_size,
        "grid": config.latent_size,
        "megabytes": sum(file.stat().st_size for file in folder.iterdir()) / 1e6,
    }
