"""What memory held, by the events of allocators and what lived at certain moments."""
