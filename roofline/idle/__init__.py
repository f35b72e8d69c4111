"""Why the device has no work: what the host did instead of launching some."""
