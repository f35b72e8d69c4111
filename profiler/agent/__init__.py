"""What an agent may ask about captures: read-only, over the Model Context Protocol."""
