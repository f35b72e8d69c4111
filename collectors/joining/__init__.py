"""Several captures of one run as one."""
