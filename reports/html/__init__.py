"""The HTML report: one offline file with the roofline, the tables and where each figure is from."""
