"""What commands answer as JSON, and the schemas that it follows."""
