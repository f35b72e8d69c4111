"""What binds a step and what to change in it, with what that would gain."""
