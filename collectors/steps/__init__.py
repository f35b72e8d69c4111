"""Where steps begin and end, and how long they take."""
