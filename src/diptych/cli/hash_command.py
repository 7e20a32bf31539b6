"""`diptych hash`: the paper's binary codes of a model's codebooks, their figures, and its timing."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diptych.cli.help_types import complete_model
from diptych.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ReadingName(StrEnum):
    """How algorithm A.1 is read."""

    PER_ROW = "per-row"
    GLOBAL = "global"


class FormName(StrEnum):
    """What hyperplanes are drawn between."""

    MERGED = "merged"
    LITERAL = "literal"


def hash_codebooks(
    folder: Annotated[Path | None, typer.Argument(hidden=True, help="The same as --model.")] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            help="Folder of a model, or the name of a shipped one.",
            show_default="a random codebook",
            autocompletion=complete_model,
        ),
    ] = None,
    codes: Annotated[int, typer.Option(min=2, help="Codes of the random codebook.")] = 512,
    dead: Annotated[float, typer.Option(min=0, max=1, help="Share of dead codes in the random codebook.")] = 0.68,
    reading: Annotated[ReadingName, typer.Option(help="How algorithm A.1 is read.")] = ReadingName.PER_ROW,
    form: Annotated[
        FormName,
        typer.Option(help="Hyperplanes between distinct codes, or between all K, as the paper has it."),
    ] = FormName.MERGED,
    select: Annotated[int, typer.Option(min=1, help="Bits that forward selection may use.")] = 292,
    repeats: Annotated[int, typer.Option(min=0, help="Repeats of the paper's timing; 0 leaves it out.")] = 5,
    seed: Annotated[int, typer.Option(help="Order in which bits are looked at.")] = 0,
    save: Annotated[bool, typer.Option("--save", help="Keep the shortened codes beside the model.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Binarise codebooks, shorten them by algorithm A.1 and by forward selection, and time the paper's listing F.1.

    Shows bits, compression against all C(K,2) hyperplanes and against those between distinct codes, concordance of the
    1, 5 and 10 nearest codes over all ids and over distinct codes, and 1 - t_H/t_E.
    """
    from diptych.cli.console import print_json, progress_bar

    model = model or folder
    if save:
        _save(model, form=form.value, reading=reading.value, seed=seed)
    results = {}
    for name, codebook in _codebooks(model, codes, dead, seed).items():
        with progress_bar(f"hashing the {name} codebook") as progress:
            results[name] = measure(
                codebook,
                form=form.value,
                reading=reading.value,
                bits=select,
                repeats=repeats,
                seed=seed,
                progress=progress,
            )
    if json_output:
        print_json(results)
    else:
        _print(results)


def _save(model: Path | None, *, form: Any, reading: Any, seed: int) -> None:
    """Write the binary codes beside the model, from where every search takes them."""
    from diptych.metrics.binary_codes import save_binary_codes
    from diptych.model import load_model
    from diptych.model.shipped import named_model

    if model is None:
        raise UsageError("--save: a random codebook has no place to keep its codes; name a model with --model")
    if named_model(model) != model:
        raise UsageError(f"--save: {model} comes with Diptych and has its binary codes; give a folder of your own")
    path = save_binary_codes(load_model(model), model, form=form, reading=reading, seed=seed)
    typer.echo(f"{path}: binary codes of both codebooks ({form}, {reading}, seed {seed})", err=True)


def measure(
    codebook: NDArray[np.floating], *, form: Any, reading: Any, bits: int, repeats: int, seed: int, progress: Any
) -> Any:
    """All figures of one codebook."""
    from dataclasses import asdict

    from diptych.hashing import binarise, compactness, optimise, report, select_bits, time_distances

    distinct = binarise(codebook)
    full = binarise(codebook, form=form)
    shortened = optimise(full, reading=reading, seed=seed)
    selected = select_bits(distinct, codebook, bits=bits, seed=seed, progress=progress)
    figures: dict[str, Any] = {
        "codes": full.codes,
        "distinct": distinct.distinct,
        "compactness": compactness(codebook),
        "all hyperplanes": asdict(report(full, codebook)),
        f"algorithm A.1 ({reading})": asdict(report(shortened, codebook)),
        "forward selection": asdict(report(selected, codebook)),
    }
    if repeats:
        timing = time_distances(codebook, shortened, repeats=repeats, progress=progress)
        figures["timing"] = asdict(timing) | {"reduction": timing.reduction}
    return figures


def _codebooks(model: Path | None, codes: int, dead: float, seed: int) -> dict[str, NDArray[np.floating]]:
    import numpy as np

    if model is not None:
        from diptych.model import load_model

        network = load_model(model)
        quantizers = {"normal": network.normal_quantizer, "abnormal": network.abnormal_quantizer}
        return {name: quantizer.codebook.detach().cpu().numpy() for name, quantizer in quantizers.items()}
    live = codes - round(codes * dead)
    if live < 1:
        raise UsageError(f"--dead {dead}: leaves no live code of {codes}; lower it")
    rng = np.random.default_rng(seed)
    codebook = np.zeros((codes, 64), dtype=np.float32)
    # Variance falls from one axis to the next, as it does in learned codebooks.
    codebook[rng.permutation(codes)[:live]] = rng.standard_normal((live, 64)) / (1.0 + np.arange(64)) ** 0.75
    return {"random": codebook}


def _print(results: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console()
    for name, figures in results.items():
        console.print(
            f"[bold]{name}[/bold]: {figures['codes']} codes, {figures['distinct']} distinct, "
            f"compactness {figures['compactness']:.2f}"
        )
        console.print(_rows(figures))
        if "timing" in figures:
            timing = figures["timing"]
            console.print(
                f"listing F.1, all pairs: Euclid {timing['euclidean']:.2f} s, Hamming {timing['hamming']:.2f} s, "
                f"1 - t_H/t_E = {100 * timing['reduction']:.1f} %"
            )


def _rows(figures: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table("", "bits", "of C(K,2)", "of distinct", "concordance 1/5/10", "over distinct codes", box=None)
    for name, value in figures.items():
        if isinstance(value, dict) and "bits" in value:
            table.add_row(
                name,
                str(value["bits"]),
                f"{100 * value['compression']:.2f} %",
                f"{100 * value['live_compression']:.2f} %",
                _three(value["concordance"]),
                _three(value["live_concordance"]),
            )
    return table


def _three(values: dict[int, float]) -> str:
    return " ".join(f"{value:.2f}" for value in values.values())
