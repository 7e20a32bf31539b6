"""The HTTP server: a versioned REST API over one archive, and the viewer's page. `diptych serve` starts it."""
