"""Which operator owns each piece of device work, and what all of it is."""
