"""Words and pictures: an Analysis becomes terminal text, HTML, Markdown or JSON."""
