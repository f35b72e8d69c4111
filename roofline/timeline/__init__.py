"""What ran when in a step: lanes of events, for the page and for other viewers."""
