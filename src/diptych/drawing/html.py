"""Pages that need nothing else: one shell for all of them, pictures inside, no script, nothing from elsewhere."""

from __future__ import annotations

import base64
from html import escape

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def html_page(title: str, body: str, *, style: str) -> str:
    """A whole page of a title (plain text), a body and CSS."""
    return (
        '<!doctype html>\n<html lang="en-GB"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>\n{body}\n</body></html>\n"
    )


def png_address(png: bytes) -> str:
    """A PNG as an address that holds the picture itself."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


REPORT_STYLE = """
:root { --ink: #1d2328; --soft: #5c6770; --line: #d9dee2; --paper: #f3efe4; --accent: #0072b2; }
* { box-sizing: border-box; }
body { margin: 0; font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; color: var(--ink);
  display: grid; grid-template-columns: 15rem minmax(0, 1fr); grid-template-rows: auto 1fr auto; }
header { grid-column: 1 / -1; padding: 1.4rem 2rem 0.9rem; border-bottom: 3px double var(--line); }
h1 { margin: 0; font-size: 1.6rem; }
header p { margin: 0.2rem 0 0; }
.notice { color: #8a3b00; font-weight: 600; }
nav { padding: 1rem 0.5rem 1rem 1.2rem; border-right: 1px solid var(--line); }
nav ol { position: sticky; top: 1rem; margin: 0; padding-left: 1.4rem; color: var(--soft); }
nav a { color: var(--accent); text-decoration: none; }
main { padding: 0 2rem 2rem; min-width: 0; max-width: 82rem; }
section { padding-top: 1rem; border-bottom: 1px solid var(--line); }
h2 { margin: 0.4rem 0 0; font-size: 1.25rem; }
h3 { margin: 1rem 0 0.3rem; font-size: 1rem; }
section > p { max-width: 52rem; }
.asked { margin: 0.1rem 0 0.6rem; color: var(--soft); font-style: italic; }
.ran { color: var(--soft); font-size: 0.8rem; }
figure { margin: 0 0 1.2rem; }
figcaption { color: var(--soft); font-size: 0.87rem; max-width: 56rem; margin-top: 0.3rem; }
img { max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.88rem; }
th { text-align: right; vertical-align: bottom; border-bottom: 2px solid var(--ink); padding: 0.25rem 0.6rem; }
td { text-align: right; border-bottom: 1px solid var(--line); padding: 0.2rem 0.6rem; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
tbody tr:hover td { background: #eef5fa; }
.paper { background: var(--paper); }
footer { grid-column: 1 / -1; padding: 1rem 2rem; color: var(--soft); font-size: 0.85rem; overflow-wrap: anywhere; }
@media (max-width: 60rem) { body { display: block; } nav { border: 0; } }
@media print { nav { display: none; } body { display: block; } section { break-inside: avoid-page; } }
"""
