"""Pages that need no build: the API's own description, and what to do when the viewer is not built.

Knows OpenAPI and HTML. No script and nothing from elsewhere; every text is escaped.
"""

from __future__ import annotations

import json
from html import escape
from typing import Any

from diptych.drawing.html import html_page

STYLE = """
body { background: #14161a; color: #d6d9de; font: 16px/1.55 system-ui, sans-serif; max-width: 960px;
  margin: 2.5rem auto; padding: 0 1rem }
h1, h2, h3 { font-weight: 500; color: #fff }
h2 { margin-top: 3rem; border-bottom: 1px solid #333; padding-bottom: .3rem }
a { color: #7fb8ea } code, pre { font: 14px/1.5 ui-monospace, monospace; background: #1d2026; border-radius: 4px }
code { padding: .1rem .3rem } pre { padding: .8rem; overflow: auto }
summary { cursor: pointer; padding: .5rem 0 } summary b { display: inline-block; min-width: 4.6rem; color: #8fd0a5 }
details { border-bottom: 1px solid #262a31 } table { border-collapse: collapse; width: 100% }
td { border-top: 1px solid #262a31; padding: .3rem .6rem .3rem 0; vertical-align: top } .dim { color: #949aa4 }
"""
NOT_BUILT = html_page(
    "Diptych",
    """<h1>The service is running</h1>
<p>Its viewer has not been built on this machine. From the project's folder, run <code>npm --prefix viewer ci</code> and
<code>npm --prefix viewer run build</code>, then load this page again.</p>
<p>The <a href="/api/v1/docs">API</a> works without it.</p>
<p class="dim">Research use only, not a medical device.</p>""",
    style=STYLE,
)


def api_page(openapi: dict[str, Any]) -> str:
    """The whole API on one page, grouped as its tags are."""
    info = openapi["info"]
    parts = [
        f'<h1>{escape(info["title"])} API <span class="dim">{escape(info["version"])}</span></h1>',
        *(f"<p>{_marked(text)}</p>" for text in info["description"].strip().split("\n\n")),
        '<p>For programs: <a href="/api/v1/openapi.json">openapi.json</a>.</p>',
    ]
    for tag in openapi["tags"]:
        parts.append(f"<h2>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p>")
        for path, methods in openapi["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation.get("tags", ()):
                    parts.append(_operation(openapi, method, path, operation))
    return html_page(f"{info['title']} API", "\n".join(parts), style=STYLE)


def _operation(openapi: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> str:
    words = operation.get("description", "")
    first = words.partition(". ")[0].rstrip(".")
    route = f"<b>{method.upper()}</b> <code>{escape(path)}</code>"
    title = f"<summary>{route} <span class=dim>{_marked(first)}</span></summary>"
    rows = "".join(
        f"<tr><td><code>{escape(one['name'])}</code></td><td class=dim>{escape(one['in'])}</td>"
        f"<td>{escape(one.get('description', ''))}</td></tr>"
        for one in operation.get("parameters", ())
    )
    body = _body(openapi, operation)
    return (
        f"<details>{title}<p>{_marked(words)}</p>"
        f"{f'<table>{rows}</table>' if rows else ''}{body}{_answers(operation)}</details>"
    )


def _body(openapi: dict[str, Any], operation: dict[str, Any]) -> str:
    """The fields of a request's body, and an example where there is one."""
    content = next(iter(operation.get("requestBody", {}).get("content", {}).values()), None)
    if content is None:
        return ""
    schema = _resolve(openapi, content["schema"])
    needed = schema.get("required", ())
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td class=dim>{'needed' if name in needed else ''}</td>"
        f"<td>{escape(_meaning(openapi, field))}</td></tr>"
        for name, field in schema.get("properties", {}).items()
    )
    example = "".join(f"<pre>{escape(json.dumps(one, indent=2))}</pre>" for one in schema.get("examples", ())[:1])
    return f"<h3>Body</h3><table>{rows}</table>{example}"


def _meaning(openapi: dict[str, Any], field: dict[str, Any]) -> str:
    words = field.get("description") or _resolve(openapi, field).get("description", "")
    default = f" Default: {json.dumps(field['default'])}." if field.get("default") is not None else ""
    choices = f" One of {', '.join(map(str, field['enum']))}." if "enum" in field else ""
    return f"{words}{choices}{default}"


def _answers(operation: dict[str, Any]) -> str:
    listed = ", ".join(f"{status} {answer.get('description', '')}" for status, answer in operation["responses"].items())
    return f"<p class=dim>Answers: {escape(listed)}</p>"


def _resolve(openapi: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").removeprefix("#/components/schemas/")
    found: dict[str, Any] = openapi["components"]["schemas"].get(name, schema)
    return found


def _marked(text: str) -> str:
    """`code` and **strong**, the only marks that descriptions use."""
    safe = escape(text.replace("\n", " "), quote=False)
    for mark, tag in (("**", "strong"), ("`", "code")):
        pieces = safe.split(mark)
        safe = "".join(f"<{tag}>{piece}</{tag}>" if place % 2 else piece for place, piece in enumerate(pieces))
    return safe
