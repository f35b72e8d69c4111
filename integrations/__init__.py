"""Callbacks for trainers. Each module imports its trainer, and nothing else imports the module."""
