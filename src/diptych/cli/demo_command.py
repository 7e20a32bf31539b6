"""`diptych demo`: the whole program once, on patients it makes itself, ending in a page to look at.

phantoms with the model's disease → shipped model → archive → searches by either panel → report (→ the reading room).
Needs no data and no download.
"""

from __future__ import annotations

import html
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.help_types import complete_model
from diptych.drawing.html import html_page, png_address
from diptych.errors import UsageError
from diptych.model.shipped import DEFAULT_MODEL

if TYPE_CHECKING:
    from PIL.Image import Image

    from diptych.description import Description
    from diptych.model import FeatureDecomposingNetwork
    from diptych.phantom import PhantomConfig
    from diptych.retrieval import Archive


SEED = 2023
"""Names the demo's patients; the shipped model was never trained on them."""
QUESTIONS = (
    ("anatomy", "This brain, without its lesion: nearest by anatomy, whatever disease is there"),
    ("lesion", "This lesion, in other brains: nearest by disease, whatever anatomy is around it"),
    ("both", "Both at once, with equal say"),
)


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for everything the demo makes.")] = Path("demo"),
    patients: Annotated[int, typer.Option(min=4, help="How many phantom patients to make.")] = 16,
    model: Annotated[
        str,
        typer.Option(
            help="Name of a shipped model; phantoms get the disease that it knows.", autocompletion=complete_model
        ),
    ] = DEFAULT_MODEL,
    serve: Annotated[bool, typer.Option("--serve", help="Then serve the archive to a browser, until Ctrl-C.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to serve on; 0 takes any free one.")] = 8765,
) -> None:
    """Make phantom patients, index them with the shipped model, search by either panel, write a report.

    A second run reuses what is there.
    """
    from diptych.model import load_model
    from diptych.model.shipped import shipped_model
    from diptych.retrieval import Archive

    folder = shipped_model(model)
    network = load_model(folder)
    config = _phantom_config(network.description, model)
    _make_patients(out / "patients", patients, config)
    _index_patients(out / "patients", out / "archive", network, folder)
    archive = Archive.open(out / "archive", model=folder)
    report = _write_report(archive, out / "report.html")
    print(f"{report}: the same with pictures")
    if serve:
        _serve(out / "archive", port)
    else:
        _say_what_to_try(out, report, archive.catalogue.volumes[-1].volume_key)


def _phantom_config(about: Description, model: str) -> PhantomConfig:
    """Phantoms with the disease that a model knows."""
    from diptych.phantom import PhantomConfig

    if about.disease == "glioma":
        return PhantomConfig()
    if about.disease == "stroke":
        return PhantomConfig(disease="stroke")
    raise UsageError(f"--model {model}: is about {about.disease}; there are phantoms of glioma and stroke only")


def _say_what_to_try(out: Path, report: Path, patient: str) -> None:
    print(f"\nOpen {report} in a browser. Then try:")
    print(f"  diptych show {out / 'patients' / patient} --figure sheet.png")
    print(f"  diptych search {out / 'archive'} {patient} --by lesion --figure found.png")
    print(f"  diptych serve {out / 'archive'}")
    print("Research use only, not a medical device.")


def _serve(archive: Path, port: int) -> None:
    """Hand over to `diptych serve`."""
    from diptych.cli.serve_command import serve

    print("\nThree things to try in the reading room:")
    print("  1. Open a patient and drag the divider over the image: the brain as it is, the brain without its lesion.")
    print("  2. Move the slider between anatomy and lesion, and see the matches change.")
    print("  3. Paint a lesion on a healthy slice, and look for patients who have it.", flush=True)
    serve([archive], port=port)


def _make_patients(folder: Path, count: int, config: PhantomConfig) -> None:
    from diptych.cli.console import progress_bar
    from diptych.phantom import write_phantoms
    from diptych.processes import cores

    with progress_bar("Making patients") as progress:
        write_phantoms(folder, patients=count, seed=SEED, config=config, workers=cores(), progress=progress)
    print(
        f"{folder}: {count} phantom patients ({config.disease}), four channels each, with labels and true healthy twins"
    )


def _index_patients(patients: Path, archive: Path, network: FeatureDecomposingNetwork, model: Path) -> None:
    from diptych.archive import ArchiveWriter
    from diptych.archive.encoding import NetworkEncoder
    from diptych.archive.indexing import index_patients
    from diptych.cli.console import progress_bar
    from diptych.metrics.label_indexing import volume_decoder
    from diptych.retrieval.model_reference import volume_check
    from diptych.volumes.sources import find_sources

    encoder = NetworkEncoder(network)
    with ArchiveWriter.open(archive, model=encoder.identity) as writer, progress_bar("Indexing") as progress:
        decode, check = volume_decoder(network, model), volume_check(model, fingerprint=network.fingerprint)
        index_patients(writer, encoder, find_sources([patients]), decode=decode, check=check, progress=progress)
        slices = writer.stat().slices
    print(f"{archive}: {slices} slices, each stored as two grids of code ids")


def _write_report(archive: Archive, path: Path) -> Path:
    """One query patient, asked three ways, as a self-contained page and a few lines on the terminal."""
    from diptych.retrieval import Question
    from diptych.search.query import panel_named

    subject = archive.stored(archive.catalogue.volumes[0].volume_key)
    parts = [
        f"<p>The query is {html.escape(subject.name)}, the slice with this patient's largest predicted lesion.</p>"
    ]
    for by, meaning in QUESTIONS:
        answer = archive.query(subject, Question(by=panel_named(by), top=5))
        print(f"by {by}: " + ", ".join(match.volume.volume_key for match in answer.matches))
        parts.append(f"<h2>{meaning}</h2>{_inline(archive.figure(answer), meaning)}")
    healthy = archive.comparators(subject, Question(top=5))
    title = "Comparators: this level in others, where no lesion is"
    parts.append(f"<h2>{title}</h2>{_inline(archive.figure(healthy), title)}")
    path.write_text(_page("\n".join(parts)), encoding="utf-8")
    return path


STYLE = """
body { background: #111; color: #ddd; font: 16px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 2rem auto }
h1, h2 { font-weight: 500 } h2 { font-size: 1.1rem; margin-top: 2rem } img { max-width: 100% }
footer { color: #999; margin-top: 2rem }
"""


def _inline(picture: Image, description: str) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return f'<img alt="{html.escape(description)}" src="{png_address(buffer.getvalue())}">'


def _page(body: str) -> str:
    whole = f"""<h1>An image as two panels, searched by either</h1>
{body}
<footer>Phantom patients, made by the program. Research use only, not a medical device.</footer>"""
    return html_page("Diptych demo", whole, style=STYLE)
