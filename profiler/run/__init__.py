"""One run of a program: finding its steps, watching them, storing what was seen."""
