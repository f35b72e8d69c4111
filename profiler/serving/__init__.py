"""Shows the captures of a folder in a browser of this machine."""
