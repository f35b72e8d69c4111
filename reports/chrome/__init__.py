"""A capture as a Chrome trace, for Perfetto."""
