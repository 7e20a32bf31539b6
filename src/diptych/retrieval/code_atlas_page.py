"""The code atlas as one HTML page that needs nothing else: pictures inside, no script, nothing fetched.

Knows entries, pixels and HTML; what the codes stand for is worked out in `code_atlas.py`. A card shows what a code
decodes to in its cell (outlined) with the cells around it, where in the head it occurs, and at which levels.
"""

from __future__ import annotations

import html
import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.archive import ArchiveCodes
from diptych.description import Description
from diptych.drawing.html import html_page, png_address
from diptych.drawing.sheet import CHANNEL_TITLES, NOTICE, Pixels
from diptych.drawing.tile import tile
from diptych.model import FeatureDecomposingNetwork
from diptych.progress import Progress, silent
from diptych.retrieval.code_atlas import CodeEntry, MeanBrains, Panel, code_entries, decode_entries, mean_brains
from diptych.retrieval.explanation import SliceView

SHOWN: dict[Panel, tuple[str, ...]] = {"normal": ("t1", "t2"), "abnormal": ("flair",)}
"""Channels in which the codes of a panel are seen best."""
HEAT = (255, 150, 40)
BRAIN_CHANNEL = "t2"

ABOUT: dict[Panel, str] = {
    "normal": "Anatomy: cut from the healthy twin of a slice in which the code stands among its usual neighbours.",
    "abnormal": "Disease: cut from the reconstruction of such a slice, first as it is, then with the decoded lesion.",
}

STYLE = """
:root { color-scheme: dark; --ink: #e6e6e6; --quiet: #9a9aa2; --line: #2c2c32; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1400px; padding: 20px 24px; background: #121214; color: var(--ink);
  font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 20px; margin: 0 0 4px; } h2 { font-size: 16px; margin: 28px 0 2px; }
p { margin: 2px 0; color: var(--quiet); max-width: 100ch; } a { color: #7fb4e6; } b { color: var(--ink); }
code { font-size: 12.5px; color: var(--ink); overflow-wrap: anywhere; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(236px, 1fr)); gap: 10px; margin-top: 12px; }
.card { border: 1px solid var(--line); border-radius: 6px; padding: 8px 10px; background: #18181b; }
.card h3 { display: flex; justify-content: space-between; margin: 0 0 6px; font-size: 14px; }
.card h3 span { font-weight: 400; color: var(--quiet); }
.row { display: flex; gap: 6px; } figure { flex: 1 1 0; margin: 0; } img { display: block; width: 100%; height: 100%; }
.patch, .brain { position: relative; background-size: 100% 100%; }
.patch::after { content: ""; position: absolute; inset: 33.3%; outline: 1px solid #ffffff99; }
.levels { flex: 0 0 16px; fill: #c9772b; } figcaption, .small { font-size: 12px; color: var(--quiet); }
.small { margin-top: 4px; } .dead { margin-top: 12px; max-width: none; font-variant-numeric: tabular-nums; }
"""


@dataclass(frozen=True, eq=False)
class _Canvas:
    """What all cards of a page share."""

    network: FeatureDecomposingNetwork
    brains: MeanBrains

    def channels(self, panel: Panel) -> list[int]:
        return list(self.network.description.shown(SHOWN[panel]).values())

    def title(self, channel: int) -> str:
        name = self.network.description.channels[channel]
        return CHANNEL_TITLES.get(name, name)

    @property
    def proportions(self) -> str:
        """Width to height of a slice, in CSS."""
        H, W = self.network.config.field_mm or self.network.config.image_size
        return f"{W:g} / {H:g}"


def draw_code_atlas(
    codes: ArchiveCodes, network: FeatureDecomposingNetwork, *, title: str, progress: Progress = silent
) -> str:
    """The whole page for an archive's codes and the model that made them."""
    canvas = _Canvas(network, mean_brains(network, codes))
    entries: dict[Panel, list[CodeEntry]] = {
        "normal": code_entries(codes, "normal"),
        "abnormal": code_entries(codes, "abnormal"),
    }
    whole, before = sum(map(len, entries.values())), 0
    sections = []
    for panel, found in entries.items():
        report = _shifted(progress, before, whole)
        cards = [_card(canvas, panel, *pair) for pair in decode_entries(network, codes, found, progress=report)]
        sections.append(_section(panel, found, cards, network.config.codebook_size))
        before += len(found)
    return _page(codes, canvas, title, sections)


def _shifted(progress: Progress, before: int, whole: int) -> Progress:
    """Report one part of a whole."""

    def report(done: int, total: int, note: str = "") -> None:
        progress(before + done, whole, note)

    return report


def _page(codes: ArchiveCodes, canvas: _Canvas, title: str, sections: list[str]) -> str:
    about = canvas.network.description
    brain = next(iter(about.shown((BRAIN_CHANNEL,)).values()))
    bands = "\n".join(
        f".band{number} {{ background-image: url({_png(tile(image[brain], canvas.brains.windows[brain]))}); }}"
        for number, image in enumerate(canvas.brains.images)
    )
    shape = f".brain, .patch {{ aspect-ratio: {canvas.proportions}; }}"
    legend = " ".join(f'<b style="color:rgb{one.colour}">■</b> {html.escape(one.abbreviation)}' for one in about.lesion)
    body = f"""<h1>Codes of {html.escape(title)}</h1>
<p>{len(codes.volumes)} volumes, {len(codes):,} slices; model {codes.model.describe()}. {NOTICE}.
Decoded from patients’ codes: guard this page like images.</p>
<p>On each card: the outlined cell holds the code; the brain is the archive’s mean at the level where the code is most
frequent, coloured by how often it stands there; the bars count it from the bottom of the head to the top.
The patient’s right is on the left. {legend}</p>
<p><a href="#normal">Normal codes</a> · <a href="#abnormal">Abnormal codes</a></p>
{"".join(sections)}"""
    return html_page(f"Codes of {title}", body, style=f"{STYLE}{shape}\n{bands}")


def _section(panel: Panel, entries: list[CodeEntry], cards: list[str], size: int) -> str:
    shares = np.array([entry.share for entry in entries])
    perplexity = float(np.exp(-(shares * np.log(shares)).sum()))
    dead = sorted({*range(size)} - {entry.id for entry in entries})
    listed = f'<p class="dead">Dead: {", ".join(map(str, dead))}</p>' if dead else ""
    return f"""<h2 id="{panel}">{panel.capitalize()} codes</h2>
<p><b>{len(entries)}</b> of {size} live, <b>{len(dead)}</b> dead, perplexity <b>{perplexity:.1f}</b>. {ABOUT[panel]}
Slices with a code: <code>diptych codes ARCHIVE --panel {panel} --id ID --cell ROW,COLUMN</code></p>
<div class="cards">{"".join(cards)}</div>{listed}
"""


def _card(canvas: _Canvas, panel: Panel, entry: CodeEntry, view: SliceView) -> str:
    image = view.healthy_twin if panel == "normal" else view.reconstruction
    tiles: list[tuple[int, NDArray[np.uint8] | None, str]] = [
        (channel, None, canvas.title(channel)) for channel in canvas.channels(panel)
    ]
    if panel == "abnormal":
        tiles.append((tiles[0][0], view.predicted_lesion, "lesion"))
    patches = "".join(
        _figure("patch", _png(_patch(tile(image[channel], canvas.brains.windows[channel], labels), entry)), name)
        for channel, labels, name in tiles
    )
    brain = _figure(f"brain band{canvas.brains.band(entry)}", _heat(entry), "where")
    row, column = entry.cell
    return f"""<div class="card" id="{panel}-{entry.id}"><h3>{entry.id}<span>{entry.share:.2%} of cells</span></h3>
<div class="row">{patches}{brain}{_levels(entry)}</div>
<div class="small">most at {row},{column} ({entry.heat[row, column]:,} slices)<br>
{_meaning(view, panel, entry, canvas.network.description)}</div></div>
"""


def _figure(kind: str, source: str, caption: str) -> str:
    return f'<figure><div class="{kind}"><img alt="" src="{source}"></div><figcaption>{caption}</figcaption></figure>'


def _patch(pixels: Pixels, entry: CodeEntry) -> Pixels:
    """The entry's cell with the eight around it, black beyond the image."""
    rows, columns = (size // cells for size, cells in zip(pixels.shape[:2], entry.heat.shape, strict=True))
    padded = np.pad(pixels, ((rows, rows), (columns, columns), (0, 0)))
    top, left = entry.cell[0] * rows, entry.cell[1] * columns
    return padded[top : top + 3 * rows, left : left + 3 * columns]


def _heat(entry: CodeEntry) -> str:
    """A pixel per cell, the more opaque the more frequent; the browser makes it smooth."""
    h, w = entry.heat.shape
    pixels = np.empty((h, w, 4), dtype=np.uint8)
    pixels[..., :3] = HEAT
    pixels[..., 3] = np.rint(230 * np.sqrt(entry.heat / entry.heat.max()))
    return _png(pixels)


def _levels(entry: CodeEntry) -> str:
    """Bars from the bottom of the head to its top, as one path."""
    count = len(entry.levels)
    widths = 16 * entry.levels / entry.levels.max()
    bars = "".join(f"M0 {10 * (count - 1 - n)}h{width:.1f}v8H0z" for n, width in enumerate(widths) if width >= 0.05)
    return f'<svg class="levels" viewBox="0 0 16 {10 * count}" preserveAspectRatio="none"><path d="{bars}"/></svg>'


def _meaning(view: SliceView, panel: Panel, entry: CodeEntry, about: Description) -> str:
    """Labels that are decoded in the cell of the example, with their shares of it."""
    normal = panel == "normal"
    labels = view.predicted_anatomy if normal else view.predicted_lesion
    names = {0: "background", **(about.anatomy_names if normal else about.lesion_names)}
    if labels is None:
        return ""
    h, w = entry.heat.shape
    H, W = labels.shape
    cell = labels.reshape(h, H // h, w, W // w)[entry.cell[0], :, entry.cell[1]]
    shares = np.bincount(cell.ravel(), minlength=len(names)) / cell.size
    shown = [
        f"{html.escape(names[label])} {shares[label]:.0%}" for label in np.argsort(-shares) if shares[label] >= 0.05
    ]
    return ", ".join(shown)


def _png(pixels: NDArray[np.uint8]) -> str:
    """Pixels as a data URI; grey ones as a grey picture."""
    if pixels.shape[2] == 3 and (pixels == pixels[..., :1]).all():
        pixels = pixels[..., 0]
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", optimize=True)
    return png_address(buffer.getvalue())
